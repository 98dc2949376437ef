"""Models as values. In: a name or a folder. Out: `ModelSpec`.

A model is its published config.json (`data/models/<org>--<name>/`, or any folder with one); beside a shipped one lies
`source.json`, which says what it rests on.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from . import quantization
from .architectures import architecture
from .architectures.contract import Architecture
from .architectures.pending import advice, family_of, why
from .checkpoint import headers
from .checkpoint.headers import Checkpoint
from .checkpoint.loaded import Loaded, loaded
from .errors import ConfigError, SpecError
from .gpus import LEAST_PART, plain
from .hf import HfConfig, read_config
from .layers import KvLayer, Layer, StateLayer, UnevenSplitError, parts
from .layers.side import SideState
from .paths import DATA, exists, resolve, shortened
from .quantization.contract import Recipe
from .ranks import HEAD_ON_EVERY_STAGE, embedding_bytes, of_attention_ranks, of_stage
from .units import Interval
from .weights import Part, reserved

_MODELS = DATA / "models"

_MOST_NAMED = 8  # models in a message


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelSpec:
    """One model, read from its config.json. `eq=False`: a value by identity, so that weights are computed once."""

    name: str
    folder: Path
    architecture: str  # as config.json names it
    layers: tuple[Layer, ...]
    context_len: int  # tokens, of the config (SGLang's derived context length)
    dtype: str
    ssm_dtype: str | None  # of the recurrent state, as the config asks; None: the engine's default
    multimodal: bool
    vision_layers: int | None  # vision_config.num_hidden_layers (Kimi-K3: vt_…): SGLang reads no other key
    vision_hidden: int | None
    quantization: str | None  # method of a quantized checkpoint, as its config names it
    quantization_names: frozenset[str]  # what --quantization may say without changing anything
    fp8_kv_of: str | None  # the checkpoint asks for KV in fp8: its method as SGLang calls it (modelopt_fp4)
    why_no_weights: str  # what of family or quantization is not known; empty: the config tells the weights
    block_size: int | None  # block drafts: tokens of a block (DSpark: the drafted ones alone)
    trained_on_layers: int | None  # DFlash drafts: layers of the target
    config: HfConfig
    family: Architecture
    checkpoint: Checkpoint | None = None  # tensors of safetensors files beside config.json
    is_builtin_draft: bool = False  # the target's own multi-token head

    @property
    def attention_layers(self) -> tuple[KvLayer, ...]:
        """The layers that keep KV."""
        return _attention_layers(self)

    @property
    def state_layers(self) -> tuple[StateLayer, ...]:
        """The layers that keep a state per request."""
        return _state_layers(self)

    @property
    def side_state(self) -> SideState | None:
        """What a state slot keeps besides; None: nothing."""
        return self.family.side_state(self.config) if self.family.side_state is not None else None

    def weights_bytes(
        self, tp: int, *, attention_tp: int | None = None, stages: tuple[int, ...] = (), fp4: bool = False
    ) -> Interval | None:
        """Bytes on one rank; None where the family or its quantization does not tell them (`why_no_weights`).

        `attention_tp`: ranks of one attention, where data-parallel attention makes them fewer than `tp`. `stages`:
        decoder layers of each pipeline stage; the heaviest stage counts. `fp4`: the card computes in FP4, so that
        weights in it need not be repacked; False: it does not, or is not known.
        """
        if self.why_no_weights and self.checkpoint is None:
            return None
        return _weights(self, tp, attention_tp or tp, stages if len(stages) > 1 else (), fp4)

    def tensors(self, tp: int) -> Iterable[Part]:
        """What the config says is loaded on a rank, in load order; of an unknown quantization, as if of none."""
        return _tensors(self, tp)

    def weights_words(self, tp: int) -> str:
        """Where the bytes come from, and how far they can be relied on."""
        return _weights_words(self, tp)

    def why_not_split(self, tp: int, attention_tp: int) -> UnevenSplitError | None:
        """What of the model does not divide over the ranks. `attention_tp`: ranks that share one attention."""
        return _why_not_split(self, tp, attention_tp)

    def builtin_draft(self) -> ModelSpec | None:
        """The model's own multi-token-prediction head as a draft; None when it has none."""
        return _builtin_draft(self)

    def as_draft(self) -> ModelSpec:
        """What SGLang makes of the model when it is named as a draft: its own head where it has one, or is taken to."""
        return _as_draft(self)


def known_models() -> tuple[str, ...]:
    """Names of the shipped models and drafts, e.g. Qwen/Qwen3.6-27B."""
    return tuple(sorted(folder.name.replace("--", "/", 1) for folder in _MODELS.iterdir() if folder.is_dir()))


def shipped_folder(name: str) -> Path | None:
    """Where the config.json of a shipped model lies; None: there is none of that name."""
    folder = _MODELS / name.replace("/", "--", 1)
    return folder if "/" in name and ".." not in name and exists(folder / "config.json") else None


def named_by(path: str) -> str | None:
    """The shipped model whose name a path on some machine ends with, compared by letters and digits alone.

    In a cache of the Hub (`models--org--name/snapshots/…`) the name stands further up.
    """
    parts = PurePosixPath(path.rstrip("/")).parts
    cached = [part.rpartition("--")[2] for part in parts if part.startswith("models--")]
    wanted = {plain(name) for name in (*parts[-1:], *cached)}
    return next((name for name in known_models() if plain(name.rpartition("/")[2]) in wanted), None)


def by_usual_name(model: str) -> str:
    """The shipped model that is meant by a name without its organisation ('deepseek-v3'); else `model` as it came.

    A folder of that name comes first, and so does whatever `load_model` knows.
    """
    if "/" in model or Path(model).is_dir():
        return model
    return named_by(model) or model


def load_model(name_or_folder: str | Path) -> ModelSpec:
    """A shipped model by name, or any folder that holds a config.json. SpecError when neither is there or usable."""
    name = str(name_or_folder)
    shipped = shipped_folder(name)
    if shipped is not None:
        return _load(shipped, name, 0)
    try:
        folder = resolve(name_or_folder, kind="model")
    except ConfigError:
        folder = None
    if folder is not None and (folder / "config.json").is_file():
        return _load(folder, name, hash(((folder / "config.json").stat().st_mtime_ns, headers.state(folder))))
    pending = family_of(name)
    if pending is not None:
        raise SpecError(f"model: {name!r}: {why(pending)}.\n{advice(pending)}")
    near = _with(name) or difflib.get_close_matches(name, known_models(), n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise SpecError(
        f"model: {shortened(name)!r} is neither shipped nor a folder with a config.json.{hint}\n"
        f"Shipped: {_shipped(name)}."
    )


def _with(name: str) -> list[str]:
    """Shipped models whose name contains what is after the organisation, by letters and digits alone."""
    part = plain(name.rstrip("/").rpartition("/")[2])
    return [known for known in known_models() if len(part) >= LEAST_PART and part in plain(known)]


def _shipped(name: str) -> str:
    """All shipped models, or where there are many those with the name in theirs; if none has, the most similar ones."""
    known = known_models()
    if len(known) <= _MOST_NAMED:
        return ", ".join(known)
    near = _with(name)[:_MOST_NAMED] or difflib.get_close_matches(shortened(name), known, n=_MOST_NAMED, cutoff=0.0)
    return f"{', '.join(near)}, and {len(known) - len(near)} more under specbench/data/models"


@functools.lru_cache(maxsize=64)
def model_source(spec: ModelSpec) -> Mapping[str, Any] | None:
    """What a shipped config.json rests on (kind, rests_on, reconstructed); None for a folder of the user."""
    file = spec.folder / "source.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None


@functools.lru_cache(maxsize=64)
def _load(folder: Path, name: str, _changed: int) -> ModelSpec:
    config = quantization.with_separate_file(read_config(folder / "config.json", name), folder, name)
    names = config.texts("architectures")
    family = architecture(names[0], config.where)
    text = family.text(config)
    vision = config.section_or_none("vision_config")
    recipe, why_no_weights = _recipe(config)
    why_no_weights = family.tensors_unknown or why_no_weights
    return ModelSpec(
        name=name,
        folder=folder,
        architecture=names[0],
        layers=family.layers(config),
        context_len=_context_len(text),
        dtype=text.text_or("dtype", None)
        or config.text_or("dtype", None)
        or config.text_or("torch_dtype", "bfloat16")
        or "",
        ssm_dtype=text.text_or("mamba_ssm_dtype", None) if family.reads_state_dtype else None,
        multimodal=vision is not None,
        vision_layers=_first(vision, "num_hidden_layers", "vt_num_hidden_layers"),
        vision_hidden=_first(vision, "hidden_size", "vt_hidden_size"),
        quantization=quantization.method(config),
        quantization_names=quantization.names(config, recipe),
        checkpoint=headers.read(folder),
        fp8_kv_of=recipe.method if recipe is not None and recipe.fp8_kv_cache else None,
        why_no_weights=why_no_weights,
        block_size=family.block_size(config) if family.block_size is not None else None,
        trained_on_layers=config.integer("num_target_layers") if "num_target_layers" in config.data else None,
        config=config,
        family=family,
    )


def _first(section: HfConfig | None, *keys: str) -> int | None:
    """The first of some numbers that a section has."""
    found = next((key for key in keys if section is not None and key in section.data), None)
    return section.integer(found) if section is not None and found is not None else None


def _recipe(config: HfConfig) -> tuple[Recipe | None, str]:
    """How the checkpoint is quantized, or why that is not known: all else of the model is predicted all the same."""
    try:
        return quantization.recipe(config), ""
    except SpecError as error:
        return None, error.first_line


def _context_len(text: HfConfig) -> int:
    """SGLang's get_context_length: the positions of the config, times the factor of a stretched rotary embedding."""
    positions = text.integer("model_max_length" if "model_max_length" in text.data else "max_position_embeddings")
    scaling = text.section_or_none("rope_scaling")
    if scaling is None:
        return positions
    factor = scaling.number_or("factor", 1.0)
    if "original_max_position_embeddings" in scaling.data or scaling.text_or("rope_type", "") == "llama3":
        factor = 1.0
    return int(factor * positions)


@functools.lru_cache(maxsize=64)
def _attention_layers(spec: ModelSpec) -> tuple[KvLayer, ...]:
    return tuple(part for part in parts(spec.layers) if isinstance(part, KvLayer))


@functools.lru_cache(maxsize=64)
def _state_layers(spec: ModelSpec) -> tuple[StateLayer, ...]:
    return tuple(part for part in parts(spec.layers) if isinstance(part, StateLayer))


@functools.lru_cache(maxsize=256)
def _weights(spec: ModelSpec, tp: int, attention_tp: int, stages: tuple[int, ...], fp4: bool) -> Interval | None:
    mine = _of_rank(spec, tp)
    if mine is None:
        return None
    doubt = 0
    if attention_tp != tp:
        attention = tuple(_of_rank(spec, attention_tp) or ())
        mine = of_attention_ranks(mine, attention)
        if mine is None:
            return None
        # some versions split the embedding over the ranks of one attention, others keep it whole
        doubt = embedding_bytes(_of_rank(spec, 1) or ()) - embedding_bytes(attention)
    if not stages:
        size = reserved(mine, fp4=fp4)
        return Interval(size.low, size.point, size.high + doubt)
    everywhere = spec.architecture in HEAD_ON_EVERY_STAGE
    mine = tuple(mine)
    parts_of = (of_stage(mine, stages, stage, head_everywhere=everywhere) for stage in range(len(stages)))
    sizes = [reserved(one, fp4=fp4) for one in parts_of]
    heaviest = max(sizes, key=lambda size: size.point)
    return Interval(heaviest.low, heaviest.point, heaviest.high + doubt)


def _of_rank(spec: ModelSpec, tp: int) -> Iterable[Part] | None:
    """Under tensor parallelism alone: by the files where there are some, else by the config."""
    found = _stored(spec, tp)
    if found is not None and found.recognised:
        return found.parts
    return None if spec.why_no_weights else _tensors(spec, tp)


@functools.lru_cache(maxsize=16)
def _tensors(spec: ModelSpec, tp: int) -> tuple[Part, ...]:
    """By the config. Of a quantization that is not known, as if there were none."""
    config = spec.config
    if spec.why_no_weights:
        config = HfConfig(where=config.where, data=quantization.without(config.data))
    return tuple(_by_config(spec, config, tp))


def _by_config(spec: ModelSpec, config: HfConfig, tp: int) -> Iterable[Part]:
    if spec.is_builtin_draft and spec.family.draft_tensors is not None:
        return spec.family.draft_tensors(config, tp)
    return spec.family.tensors(config, tp)


@functools.lru_cache(maxsize=256)
def _stored(spec: ModelSpec, tp: int) -> Loaded | None:
    """By the files. None: there are none."""
    if spec.checkpoint is None:
        return None
    return loaded(
        spec.checkpoint,
        _tensors(spec, 1),
        _tensors(spec, tp),
        layers=spec.family.text(spec.config).layers("num_hidden_layers"),
        head=spec.is_builtin_draft,
    )


def _weights_words(spec: ModelSpec, tp: int) -> str:
    shapes = "tensor shapes of config.json × type, split over ranks, as PyTorch's allocator rounds them"
    found = _stored(spec, tp)
    if found is None:
        return shapes
    if not found.recognised:
        return f"{shapes}; the names in the safetensors files are not those of the family, so their sizes are not used"
    assert spec.checkpoint is not None
    words = [
        f"sizes in the headers of {spec.checkpoint.files} safetensors files (exact: {found.stored_bytes:,} B stored)",
        "split over ranks and repacked as config.json's shapes are, as PyTorch's allocator rounds them",
    ]
    if found.unknown:
        words.append(
            f"{len(found.unknown)} tensors of names that the family does not have ({found.unknown_bytes:,} B, "
            f"{found.unknown[0]!r:.60}) are counted whole on every rank"
        )
    return ", ".join(words)


@functools.lru_cache(maxsize=256)
def _why_not_split(spec: ModelSpec, tp: int, attention_tp: int) -> UnevenSplitError | None:
    try:
        for layer in spec.layers:
            layer.split_over(attention_tp)
        if attention_tp == tp:
            for _ in _by_config(spec, spec.config, tp) if spec.why_no_weights else _tensors(spec, tp):
                pass
    except UnevenSplitError as error:
        return error
    except SpecError:  # the config tells too little of its tensors: the weights will say so
        return None
    return None


@functools.lru_cache(maxsize=64)
def _builtin_draft(spec: ModelSpec) -> ModelSpec | None:
    layers = spec.family.draft_layers(spec.config) if spec.family.draft_layers else ()
    if not layers:
        return None
    same = {name: getattr(spec, name) for name in ModelSpec.__slots__}
    return ModelSpec(**same | {"name": f"{spec.name} (MTP head)", "layers": layers, "is_builtin_draft": True})


@functools.lru_cache(maxsize=64)
def _as_draft(spec: ModelSpec) -> ModelSpec:
    head = _builtin_draft(spec)
    if head is None and spec.family.head_as_draft and not spec.is_builtin_draft:
        counted = HfConfig(where=spec.config.where, data={**spec.config.data, "num_nextn_predict_layers": 1})
        same = {name: getattr(spec, name) for name in ModelSpec.__slots__}
        head = _builtin_draft(ModelSpec(**same | {"config": counted}))
    return head or spec
