"""What one rank loads where tensor parallelism alone does not tell it: pipeline stages, data-parallel attention.

In: a model's tensors in load order, which know their module. Out: those of one rank. A stage has its own layers; the
first the embedding, the last the final norm and the head; the image encoder is on every one. Under data-parallel
attention, attention, embedding and image encoder are split over the ranks of one attention only, all else over all.
Source: SGLang 0.5.16, models/qwen3_5.py, qwen3_vl.py, deepseek_v2.py; distributed/utils.py, get_pp_indices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from .weights import Part, RotaryTable, Tensor

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)(?:\.|$)")
_HEAD, _EMBEDDING, _IMAGES = "lm_head", "embed_tokens", "visual"
#: Modules that are split over the ranks of one attention.
_ATTENTION = frozenset({"self_attn", "linear_attn", "attention", _EMBEDDING, _IMAGES})
#: Modules that some versions split so, and others otherwise.
_UNSURE = frozenset({"mixer", "mamba", "conv"})

#: Architectures whose head SGLang makes on every stage, not on the last alone (0.5.16, models/*.py).
HEAD_ON_EVERY_STAGE = frozenset(
    {
        *("LlamaForCausalLM", "Qwen3MoeForCausalLM", "MixtralForCausalLM", "Qwen3NextForCausalLM"),
        *("JetNemotronForCausalLM", "GraniteMoeHybridForCausalLM", "GptOssForCausalLM"),
    }
)


def even_stages(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each pipeline stage; what does not divide goes to the last ones. Empty stages are left out."""
    stages = min(stages, max(1, layers))
    base, extra = divmod(layers, stages)
    return tuple(base + (1 if stage >= stages - extra else 0) for stage in range(stages))


def of_stage(parts: Iterable[Part], sizes: Sequence[int], stage: int, *, head_everywhere: bool) -> Iterator[Part]:
    """The tensors of one pipeline stage. `sizes`: decoder layers of each. A part without a place of its own (a buffer)
    is where the part before it is."""
    begin, last = sum(sizes[:stage]), stage == len(sizes) - 1
    layers = range(begin, begin + sizes[stage])
    here, pending, placed = stage == 0, None, False
    embedding: Part | None = None
    has_head = False
    for part in parts:
        if isinstance(part, RotaryTable):
            pending, placed = part, False  # a stage makes its own with its first layer of attention
            if here:
                yield part
                placed = True
            continue
        found = _LAYER.search(part.module)
        words = part.module.split(".")
        if _IMAGES in words:
            here = True
        elif found is not None:
            here = int(found[1]) in layers
        elif _EMBEDDING in words:
            here, embedding = stage == 0, part
        elif _HEAD in words:
            here, has_head = last or head_everywhere, True
        elif part.module:
            here = last
        if here and pending is not None and not placed and found is not None and _ATTENTION & set(words):
            yield pending
            placed = True
        if here:
            yield part
    if last and stage != 0 and not has_head and embedding is not None:
        yield embedding  # a tied head needs the embedding's numbers on its own stage


def of_attention_ranks(over_all: Iterable[Part], over_attention: Iterable[Part]) -> Iterator[Part] | None:
    """The tensors of a rank under data-parallel attention: `over_all` split over every rank, `over_attention` over the
    ranks of one attention. None where a module is not known to be the one or the other."""
    pairs = list(zip(over_all, over_attention, strict=True))
    if any(_UNSURE & set(_words(part)) for part, _ in pairs):
        return None
    return (attention if _ATTENTION & set(_words(other)) else other for other, attention in pairs)


def _words(part: Part) -> list[str]:
    return [] if isinstance(part, RotaryTable) else part.module.split(".")


def embedding_bytes(parts: Iterable[Part]) -> int:
    """Of the embedding among them."""
    return sum(part.bytes for part in parts if isinstance(part, Tensor) and _EMBEDDING in part.module.split("."))
