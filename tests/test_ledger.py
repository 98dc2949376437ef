"""The ledger: sizes by hand from the lines of real logs, in GiB as they print them; whatever was logged, it adds up."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from specbench import frames
from specbench.cli.diagnosis_text import render
from specbench.cli.ledger_text import beside, other_ranks
from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.document import to_document
from specbench.diagnose.told import Told
from specbench.engines.contract import ServerLog
from specbench.engines.sglang.logs import read
from specbench.judging.accounting import ledgers as accounts
from specbench.judging.ledger import Card, Ledger
from specbench.judging.ledger_ranks import others
from specbench.reading.pools import report
from specbench.records.record import RunRecord
from specbench.studies.waterfall import steps
from specbench.units import GIB, MIB

HERE = Path(__file__).parent
RECORDS, CASES = HERE / "records", HERE / "logs" / "sglang" / "cases"
H200 = 143_771 * MIB / GIB  # 140.4014


def gib(ledger: Ledger) -> dict[str, float | None]:
    """Name, with its role where both have one -> GiB."""
    terms = [entry.term for entry in ledger.entries]
    return {
        f"{entry.term} {entry.role}" if terms.count(entry.term) > 1 else entry.term: None
        if entry.size is None
        else entry.size.bytes / GIB
        for entry in ledger.entries
    }


def ledgers(name: str) -> tuple[Ledger, ...]:
    path = CASES / f"{name}.log"
    return of_path(path if path.exists() else RECORDS / name).ledgers


EXPECTED: dict[str, tuple[float, dict[str, float | None]]] = {
    # Refused before its draft was loaded (0.5.12 loads it last). 140.40 - 139.13 - 0.09 = 1.18 before;
    # 139.13 - 51.05 - 0.01 - 0.42 - 2.25 - 0.04 - (0.36 + 0.36) - 84.59 = 0.05
    "0512_dflash_r8_exact": (
        H200,
        {
            "before": H200 - 139.22,
            "communication": 0.09,
            "weights": 51.05,
            "state_conv": 0.01,
            "state_ssm": 0.42,
            "scratch_ssm": 2.25,
            "scratch_conv": 0.04,
            "kv": 0.72,
            "unexplained": 0.05,
            "left": 84.59,
        },
    ),
    # The draft after the target's pools: 67.62 free when those stand, 67.53 before its load, 64.15 after it, 62.47 with
    # its pool, 62.37 at the end. Rests: 88.07 - 67.62 - (0.07 + 3.52 + 11.25 + 0.22 + 5.32) = 0.07 of the pools, 0.09
    # until the draft loads, 64.15 - 62.47 - 1.66 = 0.02 of its pool, 0.10 until the end, and 139.13 - 88.07 - 51.05
    # = 0.01 of the target's load. Together 0.29
    "0512_dflash_r4_exact": (
        H200,
        {
            "before": H200 - 139.22,
            "communication": 0.09,
            "weights": 51.05,
            "draft_weights": 3.38,
            "state_conv": 0.07,
            "state_ssm": 3.52,
            "scratch_ssm": 11.25,
            "scratch_conv": 0.22,
            "kv": 5.32,
            "draft_kv": 1.66,
            "unexplained": 0.29,
            "left": 62.37,
        },
    ),
    # 0.5.16: both load first. 139.13 - 51.05 - 3.38 - 0.02 - 1.27 - 4.50 - 0.03 - 9.66 - 3.02 - 0.09 - 0.05 - 65.80
    # = 0.26, of which 0.01 in the target's load, 0.02 until the draft's, -0.01 in it, 0.13 in the target's pools, 0.01
    # in the draft's, 0.10 until the graphs
    "dflash_r8": (
        H200,
        {
            "before": H200 - 139.22,
            "communication": 0.09,
            "weights": 51.05,
            "draft_weights": 3.38,
            "state_conv": 0.02,
            "state_ssm": 1.27,
            "scratch_ssm": 4.50,
            "scratch_conv": 0.03,
            "kv": 9.66,
            "draft_kv": 3.02,
            "graphs target": 0.09,
            "graphs draft": 0.05,
            "unexplained": 0.26,
            "left": 65.80,
        },
    ),
    # Of two ranks TP0: 140.40 - 138.21 - 1.07 = 1.12 before; 138.21 - 25.62 - 1.90 - 0.07 - 3.38 - 10.12 - 0.07 - 22.84
    # - 7.14 - 0.43 - 0.12 - 66.29 = 0.23
    "h200-tp2_dflash-8": (
        H200,
        {
            "before": H200 - 139.28,
            "communication": 1.07,
            "weights": 25.62,
            "draft_weights": 1.90,
            "state_conv": 0.07,
            "state_ssm": 3.38,
            "scratch_ssm": 10.12,
            "scratch_conv": 0.07,
            "kv": 22.84,
            "draft_kv": 7.14,
            "graphs target": 0.43,
            "graphs draft": 0.12,
            "unexplained": 0.23,
            "left": 66.29,
        },
    ),
    # 12.77 free when the pools stand, 17.24 + 0.13 before the graphs: the draft's own embedding and head came back.
    # 139.13 - 51.05 - 5.53 - 0.24 - 12.09 - 2.81 - 0.03 - 51.34 - 3.20 - 0.13 - (0.08 + 0.05) + 4.60 - 17.11 = 0.07
    "nextn_r4_full": (
        H200,
        {
            "before": H200 - 139.22,
            "communication": 0.09,
            "weights": 51.05,
            "draft_weights": 5.53,
            "state_conv": 0.24,
            "state_ssm": 12.09,
            "scratch_ssm": 2.81,
            "scratch_conv": 0.03,
            "kv": 51.34,
            "draft_kv": 3.20,
            "graphs target": 0.13,
            "graphs draft": 0.13,
            "given_back": -4.60,
            "unexplained": 0.07,
            "left": 17.11,
        },
    ),
    # Memory ran out as the draft's pool was made: 12.31 free before it, 1.03 when torch gave up, 11.28 between.
    # 139.13 - 51.05 - 3.38 - 0.13 - 6.61 - 20.25 - 0.15 - 45.12 - 11.28 - 1.03 = 0.13
    "oom_r8": (
        H200,
        {
            "before": H200 - 139.22,
            "communication": 0.09,
            "weights": 51.05,
            "draft_weights": 3.38,
            "state_conv": 0.13,
            "state_ssm": 6.61,
            "scratch_ssm": 20.25,
            "scratch_conv": 0.15,
            "kv": 45.12,
            "draft_kv": None,
            "until_failure": 11.28,
            "unexplained": 0.13,
            "left": 1.03,
        },
    ),
    # No card is told, and a host may share its memory: 109.98 - 80.31 - 0.28 - 8.07 - 9.21 - 0.79 - 10.39 = 0.93
    "ling3-flash-fin-tp-unknown": (
        109.98,
        {
            "weights": 80.31,
            "state_conv": 0.28,
            "state_ssm": 8.07,
            "kv": 9.21,
            "graphs": 0.79,
            "unexplained": 0.93,
            "left": 10.39,
        },
    ),
    # 15.24 - 5.98 - 0.03 - 2.74 - 3.04 - 0.09 - 2.89 = 0.47
    "granite4-h-micro-one-batch": (
        15.24,
        {
            "weights": 5.98,
            "state_conv": 0.03,
            "state_ssm": 2.74,
            "kv": 3.04,
            "graphs": 0.09,
            "unexplained": 0.47,
            "left": 2.89,
        },
    ),
    # torch tells the card (94.50 GiB) and that 676.81 MiB = 0.66 are free, 1.90 less than after the last graphs (2.56).
    # The excerpt lacks the loads: 93.77 - 0.07 - 3.05 - 48.75 - 0.43 - 9.04 - 6.78 - (3.85 + 6.13) - 2.17 - 1.90 - 0.66
    # = 10.94, in which the weights lie
    "dflash-b16-oom-48gb-intermediate": (
        94.50,
        {
            "before": 0.73,
            "communication": None,
            "weights": None,
            "draft_weights": None,
            "state_conv": 0.07,
            "state_ssm": 3.05,
            "scratch_ssm": 48.75,
            "scratch_conv": 0.43,
            "kv": 9.04,
            "draft_kv": 6.78,
            "graphs target": 9.98,
            "graphs draft": 2.17,
            "until_failure": 2.56 - 676.81 / 1024,
            "unexplained": 10.94,
            "left": 676.81 / 1024,
        },
    ),
    # TP7 alone logs its load: 101.35 + 41.72 = 143.07 before it; 143.07 - 41.72 - 87.01 - 14.12 = 0.22
    "deepseekv3-class-8rank": (143.07, {"weights": 41.72, "kv": 87.01, "unexplained": 0.22, "left": 14.12}),
}


@pytest.mark.parametrize("name", list(EXPECTED))
def test_every_figure_is_the_one_of_its_line(name: str) -> None:
    ledger = ledgers(name)[0]
    total, expected = EXPECTED[name]
    assert ledger.total.bytes / GIB == pytest.approx(total, abs=1e-6)
    assert gib(ledger) == {
        term: value if value is None else pytest.approx(value, abs=2e-4) for term, value in expected.items()
    }


def _logs() -> list[Path]:
    recorded = [RunRecord.open(folder).log_path for folder in RECORDS.iterdir() if (folder / "config.yaml").exists()]
    return sorted([*recorded, *CASES.glob("*.log")])


def test_it_adds_up_for_every_record_and_every_case() -> None:
    """To the byte, whether a card is known or not; the stretches between figures of free memory do as well."""
    told = 0
    for path in _logs():
        log = read(path)
        for card in (None, Card(bytes=96 * GIB, source="a card that may be too small")):
            for ledger in accounts(log, report(log), table=card):
                told += 1
                sizes = [entry.size.bytes for entry in ledger.entries if entry.size is not None]
                assert sum(sizes) == ledger.total.bytes, path
                assert [entry.term for entry in ledger.entries][-2:] == ["unexplained", "left"]
                assert all(entry.size is None or entry.lies_in is None for entry in ledger.entries)
                for one in ledger.stretches:
                    taken = _named(ledger, one.first_line, one.last_line, log)
                    assert one.before.bytes - one.after.bytes == one.rest.bytes + taken, path
    assert told > 200


def _named(ledger: Ledger, first: int, last: int, log: ServerLog) -> int:
    """What pools took between two lines, from the log's own tables: a load's own line is both ends of it."""
    rank = ledger.rank
    sizes = [load.used for load in log.weights if load.rank == rank and first == load.line == last]
    sizes += [graph.used for graph in log.graphs if graph.rank == rank and first == graph.line == last]
    for pool in log.state_pools:
        if pool.rank == rank and first < pool.line <= last:
            sizes += [pool.conv, pool.ssm, pool.scratch_ssm, pool.scratch_conv]
    sizes += [pool.kv for pool in log.kv_pools if pool.rank == rank and first < pool.line <= last]
    sizes += [n.values.get("size") for n in log.notices if n.kind == "int8_checkpoint_pool" and first < n.line <= last]
    return sum(size.bytes for size in sizes if size is not None)


def test_the_rest_of_a_step_lies_in_that_step() -> None:
    """0.5.12 walks 139.13, 88.07, 67.62, (draft) 67.53, 64.15, 62.47, 62.37."""
    (ledger,) = ledgers("0512_dflash_r4_exact")
    assert [
        (one.first_line, one.last_line, tuple(one.named), round(one.rest.bytes / GIB, 2)) for one in ledger.stretches
    ] == [
        (112, 112, ("weights",), 0.01),
        (112, 116, ("state_conv", "state_ssm", "scratch_ssm", "scratch_conv", "kv"), 0.07),
        (116, 128, (), 0.09),
        (128, 128, ("draft_weights",), 0.0),
        (128, 131, ("draft_kv",), 0.02),
        (131, 136, (), 0.10),
    ]


def test_rounding_is_carried_into_the_rest() -> None:
    """0512_dflash_r8_exact: half of 0.01 GiB for each printed figure that an entry was made of: two before loading, one
    of communication, one of the weights, four of the state, two of KV, one that is left: 11 × 0.005 = 0.055.
    """
    (ledger,) = ledgers("0512_dflash_r8_exact")
    assert ledger.rest.size is not None
    assert ledger.rest.size.resolution_bytes / GIB == pytest.approx(0.055, abs=1e-6)


def test_two_ranks_have_a_ledger_each() -> None:
    first, second = ledgers("h200-tp2_dflash-8")
    assert (first.rank, second.rank) == ("TP0", "TP1")
    assert (first.total_source, second.total_source) == ("NVML, GPU 0", "NVML, GPU 1")
    assert gib(first) == gib(second)


_SUM = "the sum of what the log names: it tells no free memory and no card"
_BEFORE = "free before loading, log line {}"


@pytest.mark.parametrize(
    ("path", "told", "total_of", "source"),
    [
        (RECORDS / "0512_dflash_r8_exact" / "server.log", Told(), "card", "GPU table, H200 (assumed)"),
        (RECORDS / "oom_r8" / "server.log", Told(gpu="h200"), "card", "CUDA's total capacity, log line 72"),
        (CASES / "granite4-h-micro-one-batch.log", Told(), "free_before_loading", _BEFORE.format(8)),
        (CASES / "ling3-bailingv3-131k.log", Told(gpu="gb10"), "free_before_loading", _BEFORE.format(2)),
        (CASES / "hybrid-pdmux-48slots.log", Told(gpu="h100"), "card", "GPU table, H100 (as told)"),
        (CASES / "b300-tp8-ratio-skill.log", Told(), "accounted", _SUM),
    ],
)  # fmt: skip
def test_it_says_who_tells_the_total(path: Path, told: Told, total_of: str, source: str) -> None:
    ledger = of_log(path, told=told).ledgers[0]
    assert (ledger.total_of, ledger.total_source) == (total_of, source)


def test_what_is_not_logged_lies_in_the_rest_by_name() -> None:
    ledger = ledgers("dflash-b16-oom-48gb-intermediate")[0]
    assert ledger.rest.label == "rest, in which weights and draft weights lie, not logged"
    assert {entry.term: entry.lies_in for entry in ledger.not_logged} == {
        "communication": "before",
        "weights": "unexplained",
        "draft_weights": "unexplained",
    }
    # A paste that only names pools: nothing tells what else there was, which is not 0.
    paste = ledgers("b300-tp8-ratio-skill")[0]
    assert paste.rest.size is None and paste.of("left") is None
    assert paste.of("weights") is None


def test_memory_that_ran_out_on_another_rank_is_no_figure_of_this_one() -> None:
    """glm-air: TP0 ran out of memory on GPU 0; TP1 says what it had free, 0.08 at its graphs."""
    by_rank = {ledger.rank: ledger for ledger in ledgers("glm-air-2x3090-tail")}
    assert by_rank["TP1"].of("left").bytes / GIB == pytest.approx(0.08)
    assert by_rank["TP0"].of("left").bytes == pytest.approx(338.75 * MIB, abs=1)
    # The cards of one server are alike.
    assert by_rank["TP1"].total.bytes / GIB == pytest.approx(23.56)


def test_a_figure_that_cannot_be_is_shown_as_it_is() -> None:
    """The excerpt's draft load stands after 2.23 free: 2.23 - 5.53 = -3.30."""
    ledger = ledgers("qwen38-27b-mtp-5090-rejected")[0]
    assert ledger.of("left").bytes / GIB == pytest.approx(-3.30)


def test_pools_of_the_host_are_beside_the_card() -> None:
    ledger = ledgers("qwen38-flashnext-nextn-lora-hicache")[0]
    assert [(entry.line, round(entry.size.bytes / GIB, 2)) for entry in ledger.beside if entry.size] == [
        (6, 40.41),
        (8, 55.6),
    ]


def test_the_document_has_every_ledger() -> None:
    document = to_document(of_path(RECORDS / "h200-tp2_dflash-8"))["ledgers"]
    assert [one["rank"] for one in document] == ["TP0", "TP1"]
    for one in document:
        assert sum(entry["bytes"] for entry in one["entries"] if entry["bytes"] is not None) == one["total_bytes"]
    kv = next(entry for entry in document[0]["entries"] if entry["term"] == "kv")
    assert kv["bytes"] == 2 * round(11.42 * GIB) and kv["line"] == 57


@pytest.mark.parametrize("name", ["granite4-h-micro-one-batch", "deepseekv3-class-8rank", "b300-tp8-ratio-skill"])
def test_the_waterfall_of_a_bare_log_adds_up(name: str) -> None:
    found = of_path(CASES / f"{name}.log")
    rows = frames.waterfall(found)
    stacked = rows[rows["term"] != "graphs"]["observed_bytes"].sum()
    assert stacked == found.ledgers[0].total.bytes
    assert rows["card_bytes"].isna().all()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_figure_is_cut_in_a_narrow_terminal(width: int) -> None:
    found = of_path(RECORDS / "oom_r8" / "server.log")
    console = Console(width=width, file=io.StringIO())
    render(found, console)
    text = console.file.getvalue()
    words = text.split()
    for entry in found.ledgers[0].entries:
        if entry.size is not None:
            assert f"{entry.size.bytes / GIB:.2f}" in words
    for figure in ("139.80", "36.5%", "739,171", "32,768"):
        assert figure in words
    # What is to be copied stands on one line.
    assert found.findings[0].remedies[0].flags in [line.strip() for line in text.splitlines()]


def test_a_rank_whose_log_adds_up_by_itself_has_no_rest_of_zero() -> None:
    """Only TP7 logs what was free before loading: 143.07 - 41.72 - 87.01 - 14.12 = 0.22. Of others it is not known."""
    first, *rest = ledgers("deepseekv3-class-8rank")
    assert (first.rank, len(rest)) == ("TP7", 7)
    assert {group.differs[("unexplained", "target", 0)] for group in others([first, *rest])} == {None}
    said = list(other_ranks([first, *rest]))
    assert said[2] == "TP2, TP3: target weights not logged; rest not known" and not any("0.00" in one for one in said)


def test_slack_and_what_is_left_are_said_beside_each_other() -> None:
    """dflash_r8 logs 66.04 GiB free when the draft's pool stood (line 39), 65.80 at last: graphs took 0.09 + 0.05."""
    (ledger,) = ledgers("dflash_r8")
    assert ledger.slack_words == (
        "slack, free when the last pool stood: 66.04 GiB; CUDA graphs and what else is not a pool leave 65.80 GiB of it"
    )
    assert ledger.slack_words in list(beside(ledger))
    # More free at last than when the pools stood: graphs took 0.36 GiB, and 0.83 was given back (one rank of 4 alone).
    (ledger,) = of_path(CASES.parent / "one_rank" / "0.5.16-tp4-nextn-8-full-card.log.gz").ledgers
    assert ledger.slack_words == (
        "slack, free when the last pool stood: 11.03 GiB; at last 11.50 GiB are free, more than that: what was given "
        "back is more than CUDA graphs and what else is not a pool took"
    )
    # It died before the draft had its pool: there is no slack, and the bar of what is left is not called so.
    refused = ledgers("0512_dflash_r8_exact")[0]
    assert refused.slack_words is None
    assert [step.label for step in steps(of_path(RECORDS / "0512_dflash_r8_exact"))][-1] == (
        "slack (observed: left free at last)"
    )
    assert [step.label for step in steps(of_path(RECORDS / "dflash_r8"))][-1] == "slack (free when the pools stand)"
