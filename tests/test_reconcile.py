"""The join of prediction and observation, on hand-made values."""

from __future__ import annotations

from dataclasses import replace

from specbench.budget_types import FreeMemory, MemoryBudget, PredictedLimit, PredictedTerm
from specbench.engines.contract import PoolReport, RankPools
from specbench.judging.reconcile import reconcile
from specbench.units import GIB, Interval, Quantity, gib_text_to_quantity

RESOLUTION = 5_368_710  # half of 0.01 GiB, rounded up


def term(name, low, point=None, high=None):
    bytes_ = Interval(low, point or low, high or point or low)
    return PredictedTerm(term=name, bytes=bytes_, formula="", numbers="", rule="")


def limit(name, low, point=None, high=None):
    value = Interval(low, point if point is not None else low, high if high is not None else low)
    return PredictedLimit(limit=name, value=value, formula="", numbers="", rule="")


def budget(**changes):
    base = MemoryBudget(
        name="n",
        engine="sglang",
        version="0.5.12",
        rule="era I",
        basis="config",
        free=FreeMemory(
            pre=Interval(139 * GIB, 139 * GIB, 140 * GIB), post=Interval(88 * GIB, 88 * GIB, 89 * GIB), source="table"
        ),
        requested_running_requests=4,
        terms={
            "weights": term("weights", 51 * GIB),
            "state_conv": term("state_conv", 25 * 48 * 61_440),
            "state_ssm": term("state_ssm", 25 * 48 * 3_145_728),
            "slack": term("slack", 60 * GIB),
        },
        limits={
            "state_slots": limit("state_slots", 24),
            "kv_tokens": limit("kv_tokens", 87_061),
            "running_requests": limit("running_requests", 4),
            "slots_per_request": limit("slots_per_request", 4),
        },
        verdict="serves",
        verdicts=("serves",),
        reason="",
        engine_error=None,
    )
    return replace(base, **changes)


def rank(name="", role="target", **fields):
    sizes = ("weights", "state_conv", "state_ssm", "scratch_ssm", "scratch_conv", "k", "v", "kv", "graphs")
    empty = dict.fromkeys((*sizes, "state_slots", "kv_tokens", "dtype", "label"))
    return RankPools(**{"rank": name, "role": role, "available": None, "lines": {}, **empty, **fields})


def report(*ranks, pre=None, post=None, **fields):
    given = {
        "requested": {},
        "running_requests": None,
        "state_slots": None,
        "kv_tokens": None,
        "context_len": None,
        "max_input_tokens": None,
        "disagreements": (),
    }
    return PoolReport(**{**given, "ranks": ranks, "pre": pre or {}, "post": post or {}, **fields})


def test_printed_sizes_match_within_their_rounding():
    seen = rank(
        state_slots=24,
        kv_tokens=87_061,
        state_conv=gib_text_to_quantity("0.07"),  # 73,728,000 B are 0.0687 GiB
        state_ssm=gib_text_to_quantity("3.52"),  # 3,774,873,600 B are 3.5156 GiB
        lines={"state_slots": 12, "kv_tokens": 13},
    )
    joined = reconcile({"config": budget()}, report(seen, running_requests=4))
    verdicts = {row.term: row.verdict for row in joined.rows}
    assert verdicts["state_conv"] == verdicts["state_ssm"] == "match"
    assert verdicts["state_slots"] == verdicts["kv_tokens"] == verdicts["running_requests"] == "match"
    assert verdicts["weights"] == "not logged"
    assert verdicts["graphs"] == "not logged"
    assert verdicts["slots_per_request"] == "not logged"
    (tokens,) = joined.of("kv_tokens", "config")
    assert (tokens.observed, tokens.line, tokens.delta) == (87_061, 13, 0)


def test_a_size_that_is_off_by_more_than_its_rounding_is_off():
    seen = rank(weights=Quantity(51 * GIB + 2 * RESOLUTION, RESOLUTION))
    (row,) = reconcile({"config": budget()}, report(seen)).of("weights", "config")
    assert row.verdict == "off"
    assert row.delta == 2 * RESOLUTION
    assert row.attribution.startswith("weights")


def test_tokens_may_differ_by_three_slots_by_none():
    off = reconcile({"config": budget()}, report(rank(kv_tokens=87_065, state_slots=25), running_requests=4))
    assert {row.term for row in off.off} == {"kv_tokens", "state_slots"}
    fine = reconcile({"config": budget()}, report(rank(kv_tokens=87_064, state_slots=24), running_requests=4))
    assert fine.off == ()


def test_unknown_is_never_zero():
    nothing = reconcile({"config": budget()}, report())
    assert {row.verdict for row in nothing.rows} <= {"not logged", "not predicted"}
    unpredicted = reconcile({"config": budget(terms={})}, report(rank(weights=Quantity(GIB))))
    (row,) = unpredicted.of("weights", "config")
    assert (row.verdict, row.predicted, row.observed) == ("not predicted", None, GIB)


def test_every_rank_has_its_own_rows_and_its_own_slack():
    pre = {"TP0": Quantity(139 * GIB), "TP1": Quantity(141 * GIB)}
    ranks = (
        rank("TP0", state_slots=24, available=Quantity(60 * GIB, RESOLUTION)),
        rank("TP1", state_slots=23, available=Quantity(62 * GIB, RESOLUTION)),
    )
    joined = reconcile({"config": budget()}, report(*ranks, pre=pre))
    assert [row.verdict for row in joined.of("state_slots", "config")] == ["match", "off"]
    assert [row.verdict for row in joined.of("slack", "config")] == ["match", "match"]


def test_graphs_captured_before_the_drafts_pool_are_slack_in_use():
    target = rank(available=Quantity(68 * GIB), graphs=Quantity(GIB), lines={"graphs": 20, "available": 15})
    draft = rank(role="draft", available=Quantity(59 * GIB), lines={"available": 30})
    (row,) = reconcile({"config": budget()}, report(target, draft)).of("slack", "config")
    assert (row.observed, row.verdict) == (60 * GIB, "match")
    later = rank(available=Quantity(68 * GIB), graphs=Quantity(GIB), lines={"graphs": 40, "available": 15})
    (row,) = reconcile({"config": budget()}, report(later, draft)).of("slack", "config")
    assert row.observed == 59 * GIB


def test_a_difference_is_attributed():
    seen = report(
        rank(kv_tokens=80_000, state_slots=24, kv=Quantity(5 * GIB)),
        pre={"": Quantity(137 * GIB)},
        post={"": Quantity(86 * GIB)},
        running_requests=4,
    )
    measured = budget(basis="measured", limits={**budget().limits, "kv_tokens": limit("kv_tokens", 80_000)})
    with_kv = budget(terms={**budget().terms, "kv": term("kv", 6 * GIB)})
    joined = reconcile({"config": with_kv, "measured": measured}, seen)
    (tokens,) = joined.of("kv_tokens", "config")
    assert tokens.attribution == "free memory: -2.00 GiB against the GPU table's 139.00 GiB"
    (kv,) = joined.of("kv", "config")
    assert kv.attribution == "follows from kv_tokens"

    both_off = reconcile({"config": budget(), "measured": budget(basis="measured")}, seen)
    assert both_off.of("kv_tokens", "measured")[0].attribution.startswith("solver")
