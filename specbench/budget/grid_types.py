"""A table of predictions: its figures and words, point by point. In: nothing. Out: `Grid`, filled by `predict_grid`.

Counts and bytes are those of `predict`, per rank and at the likely free memory; what is not predicted is masked, never
0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from ..configuration.config import RunConfig
from ..engines.sglang.sizing.contract import Refusal
from ..terms import Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Figures = np.ma.MaskedArray[Any, Any]

#: Free memory of a rank, bytes, as `predict` takes it: both or none, and no key of a configuration.
FREE = ("pre_bytes", "post_bytes")

#: What a point has in figures. Counts and bytes are those of `predict`: per rank, at the likely free memory.
FIGURES: dict[str, str] = {
    "state_slots": "slots of recurrent state",
    "slots_per_request": "state slots that one running request needs",
    "running_requests": "requests that run at once; 0 when refused",
    "kv_tokens": "tokens in the KV pool",
    "context_len": "tokens of context, input and output together",
    "max_input_tokens": "an input must be shorter than this",
    "scratch_charged_bytes": "speculative scratch, as the engine charges it",
    "rest_bytes": "left for the pools: state, scratch and KV",
    "slack_bytes": "what is left outside when all pools stand",
}
VERDICTS: tuple[Verdict, ...] = ("serves", "capped", "refused")
#: Why a point is refused: the solver's reasons, and two that are not the solver's.
REFUSALS: tuple[str, ...] = (*get_args(Refusal), "arguments", "out_of_memory")
#: Whether a point serves what is asked: at every free memory that is possible (its two ends and the likely one looked
#: at), at the likely one, at the most alone, or at none of them.
CERTAINTIES = ("sure", "likely", "unlikely", "no")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Words:
    """A word for every point, kept as its number."""

    codes: NDArray[np.int8]  # -1: none
    names: tuple[str, ...]

    def are(self, *words: str) -> NDArray[np.bool_]:
        """Where it is one of these."""
        import numpy as np

        return np.isin(self.codes, [self.names.index(word) for word in words])

    def at(self, index: Any) -> str | None:
        """Of one point."""
        code = int(self.codes[index])
        return None if code < 0 else self.names[code]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Every point of a table. Arrays have the shape of the axes; what is not predicted is masked, never 0."""

    config: RunConfig  # what does not vary
    axes: Mapping[tuple[str, ...], Sequence[tuple[Any, ...]]]  # keys that vary together -> their values
    shape: tuple[int, ...]
    figures: Mapping[str, Figures]  # by the names of FIGURES, int64
    verdict: Words  # at the likely free memory; none: not predicted
    verdict_low: Words  # with the least that may be free
    verdict_high: Words  # with the most
    refusal: Words  # of REFUSALS; none: not refused
    refused_key: Words  # the key whose value the engine refuses; none: no argument is refused
    known_fault: NDArray[np.bool_]  # a fault of the engine's version ends such a server at its first full batch
    not_predicted: Mapping[str, int]  # why, in words -> number of points

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __getitem__(self, figure: str) -> Figures:
        return self.figures[figure]

    @property
    def certainty(self) -> Words:
        """How sure it is that a point serves what is asked: a word of CERTAINTIES."""
        import numpy as np

        low, likely, high = (one.are("serves") for one in (self.verdict_low, self.verdict, self.verdict_high))
        codes = np.select([low & likely & high, likely, low | high], [0, 1, 2], 3).astype(np.int8)
        return Words(codes=np.where(self.verdict.codes < 0, np.int8(-1), codes), names=CERTAINTIES)

    def values(self, key: str) -> list[Any]:
        """The values of a key that varies, in its axis' order."""
        return [row[keys.index(key)] for keys, rows in self.axes.items() if key in keys for row in rows]

    def axis_of(self, key: str) -> int:
        """The number of the axis along which a key varies. KeyError: it does not."""
        for number, keys in enumerate(self.axes):
            if key in keys:
                return number
        raise KeyError(key)

    def varies(self, key: str) -> bool:
        return any(key in keys for keys in self.axes)

    def changes_at(self, index: Sequence[int]) -> dict[str, Any]:
        """What a point changes of the configuration. `index`: one number per axis."""
        picked = zip(self.axes.items(), index, strict=True)
        return {key: value for (keys, rows), at in picked for key, value in zip(keys, rows[at], strict=True)}

    def config_at(self, index: Sequence[int]) -> RunConfig:
        """The whole configuration of a point, for `predict` (free memory that varies is not part of it)."""
        changes = self.changes_at(index)
        return self.config.replace({key: value for key, value in changes.items() if key not in FREE})
