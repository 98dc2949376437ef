"""How many parameters a model has: in all, by part, and by layer. In: a model. Out: counts, not bytes.

Counted from the tensors that the engine creates on one rank alone, so what it adds (scales, zero points, padding of the
vocabulary to a multiple of 64, copies of a latent projection) is left out, or is named where it cannot be told apart.
A head that is the embedding (tied) is no parameter of its own, whatever the engine copies.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .specs import ModelSpec
from .weights import RotaryTable

#: Part of a model -> components of a module's path that tell it, the first row that fits.
_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (part, re.compile(rf"(^|\.)({words})(\.|$)"))
    for part, words in (
        ("vision", r"visual|vision_tower"),
        ("embedding", r"embed_tokens"),
        ("head", r"lm_head"),
        ("norms", r"\w*norm\d*"),
        ("shared_experts", r"shared_experts?|shared_mlp|shared_expert_gate"),
        ("experts", r"experts"),
        ("router", r"(mlp|mixer|feed_forward|block_sparse_moe)\.(gate|expert_bias|fc\d+_latent_proj)"),
        ("state", r"linear_attn|mamba|conv|mixer\.(in_proj|out_proj|conv1d|A|D|dt_bias|norm)"),
        ("attention", r"self_attn|indexer|attention|mixer\.(qkv_proj|o_proj)"),
        ("mlp", r"mlp|feed_forward|mixer\.(up_proj|down_proj)"),
    )
)
_LAYER = re.compile(r"^(?:model|mtp)\.layers\.(\d+)\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Counts of numbers. `total` is without the built-in multi-token head."""

    by_part: Mapping[str, int]  # embedding, head, vision, attention, state, mlp, experts, shared_experts, router, …
    by_layer: tuple[int, ...]  # of each decoder layer
    tied: bool  # the head is the embedding
    builtin_head: int | None  # without the copies of embedding and head that it loads; None: the model has none

    @property
    def total(self) -> int:
        return sum(self.by_part.values())


@functools.lru_cache(maxsize=256)
def parameters(spec: ModelSpec) -> Parameters | None:
    """Of a model. None: its family does not tell the tensors. SpecError: its config lacks a number."""
    if spec.family.tensors_unknown:
        return None
    counted: dict[str, int] = {}
    layers: dict[int, int] = {}
    tied = _tied(spec)
    for module, number in _modules(spec):
        part = _part(module)
        if part == "head" and tied:
            continue
        counted[part] = counted.get(part, 0) + number
        layer = _LAYER.match(module)
        if layer is not None:
            layers[int(layer[1])] = layers.get(int(layer[1]), 0) + number
    head = spec.builtin_draft()
    own = None
    if head is not None:
        own = sum(number for module, number in _modules(head) if _part(module) not in ("embedding", "head"))
    return Parameters(
        by_part=dict(sorted(counted.items(), key=lambda item: -item[1])),
        by_layer=tuple(layers[number] for number in sorted(layers)),
        tied=tied,
        builtin_head=own,
    )


def _modules(spec: ModelSpec) -> Iterator[tuple[str, int]]:
    for part in spec.tensors(1):
        if not isinstance(part, RotaryTable) and part.parameters:
            yield part.module, part.parameters


def _part(module: str) -> str:
    return next((part for part, wanted in _PARTS if wanted.search(module)), "other")


def _tied(spec: ModelSpec) -> bool:
    text = spec.family.text(spec.config)
    return text.flag("tie_word_embeddings", spec.config.flag("tie_word_embeddings", False))
