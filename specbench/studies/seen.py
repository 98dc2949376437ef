"""What tables and pictures of one run ask: of a record, or of a bare log. In: a diagnosis. Out: `Seen`.

A `Study` (a record) and a `LogStudy` (a log alone) answer the same questions. What a log cannot have, requests of ours
and samples of the cards, is empty there, and `no_requests` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..configuration.config import RunConfig
from ..diagnose.types import Diagnosis
from ..engines.sglang.per_worker import requests_of_worker
from ..terms import Basis, Limit, Origin, Outcome

if TYPE_CHECKING:
    from ..reading.latency import LatencyTable
    from ..records.record import RunRecord
    from ..records.types import GpuSample, RequestTrace


class Seen:
    """One run or one log, diagnosed."""

    __slots__ = ()

    if TYPE_CHECKING:  # what each of the two has in its own way

        @property
        def name(self) -> str: ...
        @property
        def diagnosis(self) -> Diagnosis: ...
        @property
        def record(self) -> RunRecord | None: ...
        @property
        def folder(self) -> Path | None: ...
        @property
        def latency(self) -> LatencyTable: ...
        @property
        def asked_limits(self) -> Mapping[Limit, int | None]: ...
        @property
        def asked_is_told(self) -> bool: ...
        @property
        def notes(self) -> tuple[str, ...]: ...
        @property
        def provenance(self) -> tuple[str, ...]: ...
        @property
        def requests(self) -> tuple[RequestTrace, ...]: ...
        @property
        def gpu_samples(self) -> tuple[GpuSample, ...]: ...
        @property
        def no_requests(self) -> str: ...

    @property
    def config(self) -> RunConfig | None:
        """None: a log of which too little is known to predict."""
        return self.diagnosis.config

    @property
    def origin(self) -> Origin:
        """Whether the figures are recorded or measured."""
        return self.diagnosis.origin

    @property
    def outcome(self) -> Outcome:
        return self.diagnosis.outcome

    @property
    def asked(self) -> int | None:
        """Requests at once that were asked for; None: left to the engine."""
        return self.asked_limits.get("running_requests")

    @property
    def wanted(self) -> int | None:
        """Asked of one data-parallel worker, the unit in which the engine resolves and a prediction counts."""
        return self.asked if self.config is None else requests_of_worker(self.config, self.asked)

    @property
    def resolved(self) -> int | None:
        """Requests at once that the engine settled on, as it logged."""
        return self.diagnosis.pools.running_requests

    @property
    def served(self) -> int | None:
        """Most requests at once, as the engine says, else the client; 0: none was answered. None: nobody says."""
        return self.diagnosis.served

    @property
    def basis(self) -> Basis:
        """The better basis of prediction that there is: the log's own free memory, else the configuration alone."""
        return "measured" if "measured" in self.diagnosis.budgets else "config"
