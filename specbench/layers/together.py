"""A decoder layer that keeps not exactly one thing. In: its parts. Out: a layer that counts as one, with what it keeps.

Pipeline stages are cut by decoder layers (SGLang: get_pp_indices), whatever these keep: Falcon-H1 has attention and
Mamba2 side by side in each, Nemotron-H has MLPs and experts as decoder layers of their own, which keep nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from .kv import KvLayer
from .state import StateLayer

Part = KvLayer | StateLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """What one decoder layer keeps, when it is several things or none."""

    parts: tuple[Part, ...] = ()

    def split_over(self, tp: int) -> None:
        """UnevenSplitError when a part does not divide over the ranks."""
        for part in self.parts:
            part.split_over(tp)


#: An MLP or a mixture of experts that is a decoder layer of its own.
NOTHING = Together()
