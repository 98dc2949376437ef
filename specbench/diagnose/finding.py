"""Findings with their evidence, and remedies whose effect is computed, recorded or read before they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..budget_types import config_words
from ..configuration.config import RunConfig
from ..gpus import RestsOn
from ..terms import Basis, Limit, Verdict
from ..units import Interval
from .catalogue import FindingId, Severity

if TYPE_CHECKING:  # a prediction reads no log
    from ..engines.contract import Line

#: How remedies follow one another, in words.
ORDER = "changes of the server first, then more GPUs, then two changes at once, asking for less last"

#: What the effect of a remedy is known from: a prediction on that basis, the log's own figures (of a model that is not
#: known), a recording, or the engine's source.
Ground = Literal[Basis, "own figures", "recording", "source"]
#: What the second of these is called wherever it is shown.
OWN_FIGURES = "this log's own figures, rounded to 0.01 GiB; model not known"
OWN_WORDS = f"from {OWN_FIGURES}"
#: In words, where nothing was predicted.
NO_PREDICTION: dict[Ground, str] = {
    "recording": "no prediction: a recording proves it",
    "source": "no prediction: by the engine's source, not recorded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change, the flags that make it, and what `predict` says it does, or what else it rests on."""

    set: Mapping[str, Any]  # dotted key -> value, as `--set` takes it
    flags: str  # the server's flags for that engine version; "" when the change is no server flag
    basis: Ground  # what the effect is known from
    predicted: Mapping[Limit, int | None]  # empty: not predicted
    verdict: Verdict | None  # None: not predicted
    note: str  # what it costs, in words
    changes_results: bool  # the output of the model may change (state dtype, KV dtype)
    #: Keys in which another run must be equal to have tried it. Empty: all that decide memory.
    decided_by: tuple[str, ...] = ()
    #: Of a prediction from the configuration alone: whether the free memory of such cards was measured.
    rests_on: RestsOn | None = None
    #: Bounds of what is predicted, on the log's own figures. Empty: see the prediction.
    spans: Mapping[Limit, Interval] = field(default_factory=dict)

    def predicted_from(self, measured: str) -> str | None:
        """'the configuration alone; free memory inferred, not measured on 2 × RTX PRO 6000'. `measured`: the words for
        the free memory of the start itself. None: nothing was predicted.
        """
        match self.basis:
            case "config":
                return config_words(self.rests_on)
            case "measured":
                return measured
            case "own figures":
                return OWN_FIGURES
            case _:
                return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause."""

    id: FindingId  # stable
    cause: str  # one sentence with figures
    severity: Severity
    evidence: tuple[Line, ...]
    remedies: tuple[Remedy, ...] = ()
    #: What it costs: the share that is lost, 0 to 1, of what the catalogue says. Orders the findings of one severity.
    #: None: not known.
    lost: float | None = None
    beside: str = ""  # the cause in a clause that follows a graver one; "": it explains nothing that one leaves open


def was_words(remedy: Remedy, before: RunConfig | None) -> str:
    """'mem_fraction_static 0.5081': figures that the start had where the remedy changes them. Empty: none was stated,
    or the remedy's own note says it.
    """
    if before is None:
        return ""
    sections = before.to_sections()
    had = {key: sections.get(key.partition(".")[0], {}).get(key.partition(".")[2]) for key in remedy.set}
    return ", ".join(
        f"{key.rpartition('.')[2]} {value}"
        for key, value in had.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and not key.startswith(("parallel.", "gpu."))  # other GPUs are named as such
        and f"instead of {value}" not in remedy.note
    )


GRAVEST_FIRST: dict[Severity, int] = {"fatal": 0, "costly": 1, "notice": 2}


def by_cost(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Gravest first; of equally grave ones what costs most, and those whose cost is not known in the given order."""
    return tuple(sorted(findings, key=lambda finding: (GRAVEST_FIRST[finding.severity], -(finding.lost or 0.0))))
