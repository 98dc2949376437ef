"""What the tests of recorded campaigns share: a campaign's params file, its shipped records, and what is predicted."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from specbench.params import load_campaign
from specbench.records.record import RunRecord
from specbench.studies.study import Study, study
from specbench.terms import Limit
from specbench.units import Interval

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "tests" / "records"


@functools.cache
def _studied(name: str) -> Study:
    return study(RECORDS / name)


@dataclass(frozen=True)
class Recorded:
    """A campaign whose records lie in tests/records/<campaign>_<run>."""

    campaign: str

    def studied(self, run: str) -> Study:
        return _studied(f"{self.campaign}_{run}")

    def opened(self, run: str) -> RunRecord:
        return RunRecord.open(RECORDS / f"{self.campaign}_{run}")

    def predicted(self, run: str, basis: str, limit: Limit) -> Interval:
        value = self.studied(run).diagnosis.budgets[basis].limits[limit].value
        assert value is not None
        return value

    def holds_what_was_asked(self, runs: set[str]) -> None:
        """Every point of the params file is shipped, with the sections that it asked for."""
        campaign = load_campaign(ROOT / "params" / f"{self.campaign}.yaml")
        assert {run.name for run in campaign.runs} == runs
        for run in campaign.runs:
            recorded = self.opened(run.name).config
            for section in ("gpu", "parallel", "speculative", "memory", "workload"):
                assert getattr(recorded, section) == getattr(run, section), (run.name, section)
            assert (recorded.model, recorded.engine.version, recorded.engine.args) == (
                run.model,
                run.engine.version,
                run.engine.args,
            )
