"""What the tests of recorded campaigns share: a campaign's params file, its shipped records, and what is predicted."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specbench.params import load_campaign
from specbench.paths import DATA
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

    def was_flushed_before_every_measured_step(self, run: str) -> None:
        record = self.opened(run)
        steps = {trace.step for trace in record.requests() if trace.phase == "measured"}
        assert steps and set(record.status.flushes) >= steps
        assert all(record.status.flushes[step].startswith("HTTP 200") for step in steps)
        assert all(record.status.caches[step].flushed for step in steps)

    def is_small_and_names_no_folder_of_a_person(self, run: str) -> None:
        record = self.opened(run)
        assert sum(file.stat().st_size for file in record.folder.iterdir()) < 250_000
        assert record.command()[0] == record.config.engine.python == "/srv/venv/bin/python3"
        assert record.env["imported"]["from"] == run
        assert "imported from a record of another machine" in record.status.notes[-1]


def row_of_the_offsets_table(measured: dict[str, Any]) -> dict[str, Any]:
    """The one row of data/offsets.yaml that stands for a row which was measured."""
    table = yaml.safe_load((DATA / "offsets.yaml").read_text(encoding="utf-8"))["rows"]
    (found,) = [
        row
        for row in table
        if {*measured["versions"]} <= {*row["versions"]}
        and {*measured["algorithms"]} <= {*row["algorithms"]}
        and [row[key] for key in ("tp", "gpu", "logged")] == [measured[key] for key in ("tp", "gpu", "logged")]
    ]
    return found
