"""What a rank loads of a checkpoint: the sizes in its files, split as the config's shapes are.

In: the tensors of the config on one rank and on several, and those of the files. Out: the tensors of a rank, with the
files' sizes. A tensor of a file belongs to the module of the config whose name it bears; merged projections, experts
and the image encoder have one module for many. The non-obvious thing: files tell what is stored, not what is kept. A
16-bit or wider float takes the type of the config's module; what a kernel repacks, pads or drops after loading follows
the config's scheme in proportion; and what no module of the config names is counted whole on every rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..quantization.matching import MERGED
from ..weights import Doubt, Part, Repacked, RotaryTable, Tensor
from .headers import FLOATS, Checkpoint, Stored

#: Wrappers of the decoder in checkpoints; the first that fits is taken off.
_WRAPPERS = ("model.language_model.", "language_model.model.", "language_model.", "backbone.")
_PART_OF = {part: merged for merged, parts in MERGED.items() for part in parts}
#: Last words of a name that are no module.
_KINDS = frozenset(
    {
        *("weight", "bias", "weight_scale", "weight_scale_inv", "weight_scale_2", "input_scale", "weight_packed"),
        *("weight_shape", "weight_zero_point", "weight_g_idx", "weight_global_scale", "input_global_scale"),
        *("qweight", "qzeros", "scales", "g_idx", "pre_quant_scale"),
    }
)
_KV_SCALES = (".k_scale", ".v_scale", ".k_proj.output_scale", ".v_proj.output_scale", ".rotary_emb.inv_freq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Tensors of one rank, and what was recognised."""

    parts: tuple[Part, ...]
    stored_bytes: int  # of the files, in modules that the config has
    unknown: tuple[str, ...]  # tensors of the files that belong to none, e.g. model.layers.0.new.weight
    unknown_bytes: int  # counted whole on every rank
    missing: tuple[str, ...]  # modules of the config without a tensor in the files: taken from the config

    @property
    def recognised(self) -> bool:
        """Whether the names are those of the config: a tenth of the bytes may be of others."""
        return self.stored_bytes > 0 and self.unknown_bytes * 9 <= self.stored_bytes


def loaded(checkpoint: Checkpoint, whole: Iterable[Part], rank: Iterable[Part], *, layers: int, head: bool) -> Loaded:
    """`whole`: the config's tensors on one rank alone; `rank`: on one of several. `layers`: of the decoder.

    `head`: what the built-in multi-token head loads, else what the model without it does.
    """
    total = _Modules(whole)
    stored: dict[str, list[Stored]] = {module: [] for module in total.bytes}
    unknown: list[Stored] = []
    for tensor in checkpoint.tensors:
        name = _plain(tensor.name)
        if _is_head(name, layers) != head or tensor.name.endswith(_KV_SCALES):
            continue
        module = _module(name, total.bytes)
        if module is None:
            unknown.append(tensor)
        else:
            stored[module].append(tensor)
    shares = {module: _share(total, module, tensors) for module, tensors in stored.items() if tensors}
    parts = [*_scaled(rank, shares), *(Tensor(tensor.bytes, module=tensor.name) for tensor in unknown)]
    return Loaded(
        parts=tuple(parts),
        stored_bytes=sum(tensor.bytes for tensors in stored.values() for tensor in tensors),
        unknown=tuple(tensor.name for tensor in unknown),
        unknown_bytes=sum(tensor.bytes for tensor in unknown),
        missing=tuple(module for module, tensors in stored.items() if not tensors),
    )


class _Modules:
    """Bytes as loaded and the model's own numbers, per module of the config."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.bytes: dict[str, int] = {}
        self.parameters: dict[str, int] = {}
        for part in parts:
            if isinstance(part, RotaryTable):
                continue
            size = part.before if isinstance(part, Repacked) else part.bytes
            self.bytes[part.module] = self.bytes.get(part.module, 0) + size
            self.parameters[part.module] = self.parameters.get(part.module, 0) + part.parameters


def _share(total: _Modules, module: str, tensors: list[Stored]) -> float:
    """Bytes of the files over those of the config. Plain floats by their number: they take the config's type."""
    values = sum(tensor.values for tensor in tensors)
    if all(tensor.dtype in FLOATS for tensor in tensors) and total.parameters[module]:
        plain = total.bytes[module] >= 2 * total.parameters[module]  # the config quantizes it not
        kept = total.bytes[module] * values / total.parameters[module] if plain else sum(t.bytes for t in tensors)
        return kept / total.bytes[module]
    return sum(tensor.bytes for tensor in tensors) / total.bytes[module]


def _scaled(parts: Iterable[Part], shares: dict[str, float]) -> Iterator[Part]:
    for part in parts:
        share = 1.0 if isinstance(part, RotaryTable) else shares.get(part.module, 1.0)
        if isinstance(part, RotaryTable | Doubt) or share == 1.0:
            yield part
        elif isinstance(part, Repacked):
            yield replace(part, before=round(part.before * share), bytes=round(part.bytes * share))
        else:
            yield replace(part, bytes=round(part.bytes * share))


def _plain(name: str) -> str:
    """Without the wrapper of a multimodal model: model.layers.…, lm_head.…, visual.…"""
    name = name.removeprefix("model.") if name.startswith(("model.visual.", "model.vision")) else name
    for wrapper in _WRAPPERS:
        if name.startswith(wrapper):
            rest = name.removeprefix(wrapper)
            return rest if rest.startswith("lm_head") else f"model.{rest}"
    return name


def _is_head(name: str, layers: int) -> bool:
    """The built-in head: under mtp., or layers after the decoder's last."""
    if name.startswith("mtp."):
        return True
    number = name.removeprefix("model.layers.").partition(".")[0]
    return name.startswith("model.layers.") and number.isdecimal() and len(number) < 6 and int(number) >= layers


def _module(name: str, known: dict[str, int]) -> str | None:
    """The config's module that a tensor belongs to: its own path, a merged one, or one that holds it."""
    steps = name.split(".")
    if steps[-1] in _KINDS:
        steps = steps[:-1]
    if not steps:
        return None
    merged = ".".join([*steps[:-1], _PART_OF.get(steps[-1], steps[-1])])
    if merged in known:
        return merged
    for end in range(len(steps), 0, -1):
        path = ".".join(steps[:end])
        if path in known:
            return path
    norm = ".".join([*steps[:-1], "norm"])
    return norm if "norm" in steps[-1] and norm in known else None
