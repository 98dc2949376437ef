"""A record of a real SGLang 0.5.23 on the CPU (`make live`), read and played without that engine.

The shipped recordings end at 0.5.16; this is the newest version's own log, HTTP traffic and pools.
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from specbench.budget.predict import predict
from specbench.campaign.bill import bill
from specbench.cli.pools_text import pools_text
from specbench.configuration.config import RunConfig
from specbench.diagnose import diagnosis
from specbench.engines.sglang import logs
from specbench.lifecycle.ending import classify
from specbench.params import load_campaign
from specbench.records.provenance import provenance
from specbench.records.record import RunRecord
from specbench.running.run import run
from specbench.studies.study import study
from specbench.studies.waterfall import steps
from specbench.units import GIB, Interval
from specbench.whatif.outlook import WhatIf
from specbench.whatif.panel import curve_of
from specbench.whatif.picture import Picture

RECORDS = Path(__file__).parent / "live" / "records"


@pytest.mark.parametrize("name", ["dflash-4", "dflash-capped-4"])
def test_every_line_of_the_newest_log_is_read(name: str) -> None:
    log = logs.read(RunRecord.open(RECORDS / name).log_path)
    assert log.unread == () and log.failures == ()
    assert log.version_range == ("0.5.23", "0.5.23")  # by the names of its arguments
    assert [(pool.role, pool.tokens) for pool in log.kv_pools] == [("target", 16384), ("draft", 16384)]
    assert log.ready_line is not None


@pytest.mark.parametrize(
    ("name", "slots", "requests", "outcome"),
    [("dflash-4", 24, 4, "served"), ("dflash-capped-4", 8, 2, "capped")],
)
def test_pinned_pools_are_predicted_exactly(name: str, slots: int, requests: int, outcome: str) -> None:
    """24 slots at 3 per request would serve 8, 4 are asked; 8 slots serve 2 of them."""
    found = diagnosis.of_record(RunRecord.open(RECORDS / name))
    assert found.outcome == outcome and found.served == requests
    assert found.reconciliation.off == ()
    for basis in ("config", "measured"):
        for limit, value in {"state_slots": slots, "running_requests": requests, "kv_tokens": 16384}.items():
            (row,) = found.reconciliation.of(limit, basis)
            assert (row.predicted.point, row.observed, row.verdict) == (value, value, "match")
    (scratch,) = found.reconciliation.of("scratch_ssm", "measured")
    # (requests + 1) × 8 tokens × 3 layers × 8 heads × 64 × 64 × 4 B, printed as 0.01 GB
    assert scratch.predicted.point == (requests + 1) * 8 * 3 * 8 * 64 * 64 * 4
    assert scratch.observed == round(0.01 * GIB) and scratch.verdict == "match"
    (slack,) = found.reconciliation.of("slack", "config")
    assert slack.verdict == "not predicted"


# ── 4 and 8 ranks: params/live-tp.yaml, the heads of Qwen3.6-27B ─────────────────────────────────────────────────────

# Three linear layers of 16 key and 48 value heads of 128; one attention layer of 4 KV heads of 256; a DFLASH draft of
# two layers of 8 KV heads of 128. A rank of 4 holds of a slot 3 × 12 × 128 × 128 × 4 B, a rank of 8 half of that; of a
# token one KV head, 256 × 2 × 2 B, with 8 ranks the same (each head is kept twice); of the draft's heads two, 2 × 2 ×
# 128 × 2 × 2 B, a rank of 8 one.
SLOT = {4: 2_359_296, 8: 1_179_648}
KV = {4: 1024, 8: 1024}
DRAFT_KV = {4: 2048, 8: 1024}
RANKED = [("tp4-dflash-from-memory", 4, 20, 6, 80_602), ("tp8-dflash-8", 8, 24, 8, 65_536)]


@pytest.mark.parametrize(("name", "ranks", "slots", "requests", "tokens"), RANKED)
def test_every_rank_holds_its_share(name: str, ranks: int, slots: int, requests: int, tokens: int) -> None:
    """As every rank logged it: a slot and a token more than are given out, and 8 drafts of a request more."""
    record = RunRecord.open(RECORDS / name)
    log = logs.read(record.log_path)
    assert log.unread == () and log.failures == ()
    assert {pool.rank for pool in log.state_pools} == {f"TP{number}" for number in range(ranks)}
    assert len(log.state_pools) == ranks and len(log.kv_pools) == 2 * ranks
    for state in log.state_pools:
        assert state.slots == slots
        assert abs(state.ssm.bytes - (slots + 1) * SLOT[ranks]) <= state.ssm.resolution_bytes
        assert abs(state.scratch_ssm.bytes - (requests + 1) * 8 * SLOT[ranks]) <= state.scratch_ssm.resolution_bytes
    for pool in log.kv_pools:
        assert pool.tokens == tokens
        cell = KV[ranks] if pool.role == "target" else DRAFT_KV[ranks]
        assert abs(pool.kv.bytes - (tokens + 1) * cell) <= pool.kv.resolution_bytes
    assert [trace.error for trace in record.requests()] == [None] * 11


@pytest.mark.parametrize(("name", "ranks", "slots", "requests", "tokens"), RANKED)
def test_every_rank_is_predicted(name: str, ranks: int, slots: int, requests: int, tokens: int) -> None:
    """Pinned: exactly. From memory: within what the rank with least free memory lets expect, read to 0.01 GiB."""
    found = diagnosis.of_record(RunRecord.open(RECORDS / name))
    assert found.reconciliation.off == () and found.served == requests
    for basis in ("config", "measured"):
        for limit, value in {"state_slots": slots, "kv_tokens": tokens}.items():
            rows = found.reconciliation.of(limit, basis)
            assert [row.rank for row in rows] == [f"TP{number}" for number in range(ranks)]
            assert {(row.observed, row.verdict) for row in rows} == {(value, "match")}
            if ranks == 8:
                assert {row.predicted for row in rows} == {Interval.exact(value)}
        (row,) = found.reconciliation.of("running_requests", basis)
        assert (row.observed, row.verdict) == (requests, "match")
    pre = found.budgets["measured"].free.pre
    least = min(size.bytes for size in logs.read(RunRecord.open(RECORDS / name).log_path).memory_before.values())
    assert pre.low <= least <= pre.high


def test_four_ranks_are_predicted_before_the_start() -> None:
    """What all four of a real start then logged: 24 slots, 65,536 tokens, 8 requests."""
    (config,) = [run for run in load_campaign("params/live-tp.yaml").runs if run.name == "tp4-dflash-8"]
    budget = predict(config)
    assert budget.verdict == "serves" and "left for pools per rank" in budget.reason
    assert {name: budget.terms[name].bytes for name in ("state_ssm", "scratch_ssm", "kv", "draft_kv")} == {
        "state_ssm": Interval.exact(58_982_400),  # 25 × 2,359,296
        "scratch_ssm": Interval.exact(169_869_312),  # 9 × 8 × 2,359,296
        "kv": Interval.exact(67_109_888),  # 65,537 × 1,024
        "draft_kv": Interval.exact(134_219_776),  # 65,537 × 2,048
    }
    # With 1,152,000 and 3,317,760 B of convolution windows 434,651,136 B: 0.405 GiB, four times 1.62 GiB.
    waits, shared = budget.warnings
    assert waits == budget.admission and "a server with 8 places admits nothing before 2 are free" in waits
    assert shared.startswith("4 ranks share the host's memory: their pools take 1.62 GiB of it, 4 × 0.40 GiB, beside")


@pytest.mark.parametrize(
    ("name", "who"),
    [
        (
            "tp8-dflash-8",
            "One rank hangs and the others wait for it in a collective operation, or a step takes longer:",
        ),
        ("dflash-4", "Its scheduler hangs, or a step takes longer:"),
    ],
)
def test_a_server_that_hangs_has_not_ended_without_a_word(tmp_path: Path, name: str, who: str) -> None:
    """The reason is `classify`'s of a server whose processes went on: SIGSTOP of one rank of four, for instance."""
    hung = classify(ready=True, ended_by_itself=False, exit_code=None, failures=(), answering=False)
    folder = shutil.copytree(RECORDS / name, tmp_path / "hung")
    status = json.loads((folder / "status.json").read_text("utf-8"))
    changed = {"status": hung.status, "reason": hung.reason, "exit_code": hung.exit_code}
    (folder / "status.json").write_text(json.dumps(status | changed), "utf-8")
    (found,) = [one for one in diagnosis.of_record(RunRecord.open(folder)).findings if one.severity == "fatal"]
    assert found.id == "stopped-answering"
    assert "gave no answer within the 600 s of a request, its processes went on until they were ended" in found.cause
    assert who in found.cause


def test_it_says_that_its_times_are_no_performance_figures(tmp_path: Path) -> None:
    recorded = RunRecord.open(RECORDS / "dflash-4")
    assert any("NOT A PERFORMANCE FIGURE" in note for note in recorded.status.notes)
    assert "on the CPU" in provenance(recorded)
    replayed = run(
        RunConfig.model_validate(
            {
                "name": "again",
                "engine": {"version": "0.5.23", "replay": str(RECORDS / "dflash-4"), "replay_speed": "instant"},
                "model": "live/models/tiny-hybrid",
                "gpu": {"name": "cpu"},
                "workload": {"input_tokens": [64], "output_tokens": 32, "concurrency": [1, 4], "requests": 4},
            }
        ),
        tmp_path / "again",
    )
    assert (replayed.status.status, replayed.origin) == ("served", "recorded")
    assert any("NOT A PERFORMANCE FIGURE" in note for note in replayed.status.notes)
    # two to warm up, four per step
    assert len(replayed.requests()) == len(recorded.requests()) == 10


def test_the_ledger_of_a_host_has_no_cuda_graphs_and_names_who_else_takes_of_it() -> None:
    (ledger,) = diagnosis.of_record(RunRecord.open(RECORDS / "dflash-4")).ledgers
    assert ledger.rest.label == "taken by the rest of the host, other ranks too"
    assert ledger.not_logged == () and ledger.of("graphs") is None and ledger.of("given_back") is None


def test_the_picture_of_a_host_has_a_scale_though_there_is_no_card() -> None:
    """18.81 GiB were free before loading. Words 0.4 GiB beside a bar of MiB were once beyond what a font can be at."""
    subject = study(RECORDS / "dflash-4").diagnosis
    what = WhatIf.of(subject)
    before = what.with_({})
    picture = Picture(what, before, steps(subject))
    picture.update(before, curve_of(what, before))
    assert picture.png().startswith(b"\x89PNG")
    waterfall = picture._waterfall
    assert waterfall.widest == pytest.approx(18.81) and waterfall._ax.get_xlabel() == "GiB of the host, per rank"
    # Nothing observed: as wide as what is predicted. (slots + 1 and (requests + 1) × 8 tokens) × 3 layers × (8 × 64
    # × 64 × 4 B of state + 1,024 × 3 × 2 B of convolution), and 16,385 tokens × (1,024 + 2,048) B: 77,091,840 B
    alone = Picture(what, before, ())
    alone.update(before, curve_of(what, before))
    assert alone.png().startswith(b"\x89PNG")
    assert alone._waterfall.widest * GIB == pytest.approx((25 + 40) * 3 * (131_072 + 6_144) + 16_385 * 3_072)


@pytest.mark.parametrize(("name", "starts"), [("live", 9), ("live-tp", 6)])
def test_a_campaign_on_the_cpu_holds_no_gpu(name: str, starts: int) -> None:
    total = bill(load_campaign(f"params/{name}.yaml").runs)
    assert (total.starts, total.held_s, total.gpu_s) == (starts, 0, 0)
    assert total.total_s > 0


def test_nothing_is_said_of_nvml_where_no_gpu_was_used(tmp_path: Path) -> None:
    folder = shutil.copytree(RECORDS / "dflash-4", tmp_path / "measured")
    status = json.loads((folder / "status.json").read_text("utf-8"))
    (folder / "status.json").write_text(json.dumps({**status, "origin": "measured"}), "utf-8")
    found = diagnosis.of_record(RunRecord.open(folder))
    assert found.origin == "measured" and "measured" in found.budgets
    assert not [text for text in found.assumptions if "NVML" in text]


@pytest.mark.parametrize("name", ["tp4-dflash-from-memory", "tp8-dflash-8"])
def test_ranks_that_got_the_same_are_one_column_that_fits_a_terminal(name: str) -> None:
    """Their weights differ by 0.01 GiB, as what else took of the host's memory meanwhile is in them."""
    out = io.StringIO()
    console = Console(width=80, file=out)
    console.print(pools_text(diagnosis.of_record(RunRecord.open(RECORDS / name))))
    table = out.getvalue()
    assert "…" not in table and table.count("TP0 to TP3" if name.startswith("tp4") else "TP0 to TP7") == 2
    assert {"0.01 to 0.02", "0.00 to 0.02"} & {" ".join(row.split()[1:4]) for row in table.split("\n")}
