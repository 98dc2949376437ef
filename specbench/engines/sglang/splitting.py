"""Whether a model divides over its ranks. In: a configuration and its models. Out: what does not, and sizes that work.

The non-obvious thing is that every kind of head has its own rule: KV heads and linear key heads are replicated when
they are fewer than the ranks, all others must divide; so a size counts only when the whole model, and the draft, accept
it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...configuration.config import RunConfig
from ...specs import ModelSpec

_LARGEST_PROPOSED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Uneven:
    """Why `parallel.tp_size` does not work."""

    reason: str
    sizes: tuple[int, ...]  # sizes that do, in ascending order

    @property
    def allowed(self) -> str:
        return ", ".join(map(str, self.sizes)) + f" (of 1 to {_LARGEST_PROPOSED})"


def uneven(config: RunConfig, target: ModelSpec, draft: ModelSpec | None) -> Uneven | None:
    """None: everything divides. (Ranks over data-parallel groups are `checks.parallelism`'s.)"""
    parallel = config.parallel
    groups = parallel.attention_dp
    if parallel.tp_size % groups:
        return None
    for spec in (target, draft):
        problem = spec.why_not_split(parallel.tp_size, parallel.tp_size // groups) if spec is not None else None
        if spec is not None and problem is not None:
            ranks = f"{parallel.tp_size // groups} attention ranks" if groups > 1 else f"{parallel.tp_size} ranks"
            return Uneven(
                reason=f"{problem.what} of {spec.name} ({problem.count:,}) do not divide over {ranks}",
                sizes=tuple(
                    size
                    for size in range(groups, _LARGEST_PROPOSED + 1, groups)
                    if all(s is None or s.why_not_split(size, size // groups) is None for s in (target, draft))
                ),
            )
    return None
