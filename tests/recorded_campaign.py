"""What the tests of recorded campaigns share: a campaign's params file, its shipped records, and what is predicted."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench.engines.contract import RankPools
from specbench.params import load_campaign
from specbench.paths import DATA
from specbench.records.record import RunRecord
from specbench.studies.study import Study, study
from specbench.terms import Limit
from specbench.units import Interval, Quantity

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "tests" / "records"


@functools.cache
def _studied(name: str) -> Study:
    return study(RECORDS / name)


@dataclass(frozen=True)
class Share:
    """Bytes of one rank: of a slot's state and convolution, and of K of a token (V is as large)."""

    ssm: int
    conv: int
    k: int
    k_dflash: int
    k_nextn: int


def share_of(ranks: int) -> Share:
    """Of Qwen3.6-27B. 48 layers with a state: 48 value heads of 128 × 128 in float32, and the last 3 inputs of a
    convolution over 10,240 channels in bfloat16. 16 layers with KV: 4 heads of 256, K and V each, in bfloat16, of which
    a rank holds one at least. A DFLASH draft has 5 layers with 8 heads of 128, NEXTN one layer like the target's.
    """
    heads, draft_heads = max(4 // ranks, 1), max(8 // ranks, 1)
    return Share(
        ssm=48 * (48 // ranks) * 128 * 128 * 4,
        conv=48 * (10_240 // ranks) * 3 * 2,
        k=16 * heads * 256 * 2,
        k_dflash=5 * draft_heads * 128 * 2,
        k_nextn=1 * heads * 256 * 2,
    )


def near(logged: Quantity | None, expected: int) -> None:
    assert logged is not None
    assert logged.bytes == pytest.approx(expected, abs=logged.resolution_bytes)


@dataclass(frozen=True)
class Recorded:
    """A campaign whose records lie in tests/records/<campaign>_<run>."""

    campaign: str
    file: str | None = None  # its params file, from the root of the project; None: params/<campaign>.yaml

    def studied(self, run: str) -> Study:
        return _studied(f"{self.campaign}_{run}")

    def opened(self, run: str) -> RunRecord:
        return RunRecord.open(RECORDS / f"{self.campaign}_{run}")

    def predicted(self, run: str, basis: str, limit: Limit) -> Interval:
        value = self.studied(run).diagnosis.budgets[basis].limits[limit].value
        assert value is not None
        return value

    def pools(self, run: str, rank: str, role: str = "target") -> RankPools:
        every = self.studied(run).diagnosis.pools.ranks
        (found,) = [one for one in every if (one.rank, one.role) == (rank, role)]
        return found

    def ranks(self, run: str) -> list[str]:
        return [f"TP{rank}" for rank in range(self.opened(run).config.parallel.tp_size)]

    def came_out(self, run: str, logged: tuple[str, int, int, int, int, int]) -> None:
        """`logged`: outcome, asked, resolved, served, and the state slots and tokens of every rank."""
        *words, slots, tokens = logged
        found = self.studied(run)
        assert [found.outcome, found.asked, found.resolved, found.served] == words
        for rank in self.ranks(run):
            assert (self.pools(run, rank).state_slots, self.pools(run, rank).kv_tokens) == (slots, tokens)

    def every_rank_holds_its_share(self, run: str, *, slots: int, tokens: int, requests: int) -> None:
        """One slot and one request more than logged are kept for padding, and one page of one token."""
        config = self.opened(run).config
        share = share_of(config.parallel.tp_size)
        for rank in self.ranks(run):
            own = self.pools(run, rank)
            assert (own.state_slots, own.kv_tokens) == (slots, tokens)
            near(own.state_ssm, (slots + 1) * share.ssm)
            near(own.state_conv, (slots + 1) * share.conv)
            near(own.k, (tokens + 1) * share.k)
            near(own.v, (tokens + 1) * share.k)
            algorithm, width = config.speculative.algorithm, config.speculative.num_draft_tokens
            if width is None or algorithm == "none":
                continue
            draft = {"DFLASH": share.k_dflash, "NEXTN": share.k_nextn}[algorithm]
            near(self.pools(run, rank, "draft").k, (tokens + 1) * draft)
            near(own.scratch_ssm, (requests + 1) * width * share.ssm)

    def holds_what_was_asked(self, runs: set[str]) -> None:
        """Every point of the params file is shipped, with the sections that it asked for."""
        campaign = load_campaign(ROOT / (self.file or f"params/{self.campaign}.yaml"))
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
