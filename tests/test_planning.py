"""The planner: wishes, candidates, the search and its proofs, against figures worked out by hand."""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from specbench.budget.predict import predict
from specbench.errors import ConfigError
from specbench.params import load_run
from specbench.planning import changes, grid
from specbench.planning.begin import from_scratch
from specbench.planning.commands import difference, shell_line
from specbench.planning.halving import largest
from specbench.planning.reaching import certain, lacking
from specbench.planning.screen import Frame, Need, changed, estimated_outside, figures, frame
from specbench.planning.search import plan
from specbench.planning.types import Answer, Size
from specbench.planning.wished import asking, one_request, with_wishes
from specbench.planning.wishes import Wishes, of_mapping, parse
from specbench.planning.words import also_asked, bases, cautions, cheaper, headline, needs, of_size, rests_on
from specbench.units import GIB

#: Qwen3.6-27B on one rank: 48 × (3,145,728 + 61,440) B a slot; a token of target and draft 21/16 of 65,536 B.
SLOT, TOKEN = 153_944_064, 86_016
TIGHT = ("state_dtype=float32", "kv_dtype=auto", "draft_tokens=16", "prefix_cache=true")


@functools.cache
def answer(params: str, *texts: str, keep: str = "", sizes: tuple[int, ...] = (1, 2, 4, 8)) -> Answer:
    wishes = [text for text in texts if "." not in text.partition("=")[0]]
    config = load_run(f"params/{params}.yaml", [text for text in texts if text not in wishes])
    return plan(config, parse(wishes), keep=keep.split(), sizes=sizes)


def size(found: Answer, tp_size: int) -> Size:
    return next(one for one in found.sizes if one.tp_size == tp_size)


def limits(budget: Any) -> tuple[int, int, int]:
    names = ("state_slots", "running_requests", "kv_tokens")
    return tuple(budget.limits[name].value.point for name in names)


# ── the story, unaided ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_story_of_0512_four_on_one_card_and_more_on_four_and_eight() -> None:
    """With 19.5911 GiB left on one card, R requests leave (19.5911 - R × 16 × 0.14337) / 3 for slots of 0.14337 GiB:
    R = 4 gives 24 slots, 24 // 4 = 6; R = 5 gives 18 slots, 18 // 4 = 4 < 5. So 4 are the most as the settings are."""
    found = answer("story/tp1-4")
    asked = {one.tp_size: (one.most[0].requests, one.most[0].sure) for one in found.sizes}
    assert asked == {1: (4, 4), 2: (22, 21), 4: (56, 56), 8: (126, 125)}
    assert found.best is not None
    assert (found.best.tp_size, found.best.changes, limits(found.best.budget)) == (1, (), (24, 4, 87_061))
    # 5 × (4 + 16) × SLOT = 14.337 GiB of the 19.5911 leave 5.254 GiB: 65,584 tokens
    slots = size(found, 1).most[1]
    assert slots.requests == 5 and slots.plan is not None
    assert limits(slots.plan.budget) == (20, 5, 65_584)


def test_the_story_of_0516_needs_the_slots_given_for_four_on_one_card() -> None:
    """Era II: 8 slots by the ratio, 8 // 5 = 1. Given 20 slots: 20 × SLOT of state and 4 × 16 × SLOT of scratch."""
    found = answer("story/tp2-8-0516")
    levels = {one.tp_size: [most.requests for most in one.most] for one in found.sizes}
    assert levels[1][:2] == [1, 4] and levels[2][:2] == [9, 27] and levels[4][0] == 24 and levels[8][0] == 55
    four = size(found, 1).most[1].plan
    assert four is not None
    assert {key: value for change in four.changes for key, value in change.set.items()} == {
        "memory.max_running_requests": 4,
        "memory.max_mamba_cache_size": 20,
    }
    # recorded with this budget emulated: 20 slots, 50,824 tokens; the draft's weights are known to ± 0.04 GiB
    tokens = four.budget.limits["kv_tokens"].value
    assert tokens is not None and tokens.low <= 50_824 <= tokens.high


def test_eight_with_0512_cost_slack_precision_or_width_on_one_card_and_nothing_on_more() -> None:
    found = answer("story/tp1-8", "running_requests=8")
    one = size(found, 1)
    kinds = [[change.kind for change in plan.changes] for plan in one.plans]
    assert kinds[:3] == [["fraction"], ["state_dtype"], ["draft_tokens"]] and one.complete
    # 0.89 × 94.3065 - 51.1387 = 32.79 GiB, less 8 × 16 × SLOT = 14.44: a third of it is 33 slots, 33 // 4 = 8
    assert one.plans[0].config.memory.mem_fraction_static == 0.89
    assert limits(one.plans[0].budget)[:2] == (33, 8) and one.plans[0].certainty == "sure"
    assert [plan.changes for tp in (2, 4, 8) for plan in size(found, tp).plans] == [(), (), ()]
    why = {failure.kind: failure.why for failure in one.failures}
    assert why["none"].startswith("refused: 2 state slots are fewer than the 4 of one request: 19.59 GiB")
    assert "1,155 of 32,768 KV tokens" in why["radix"]


# ── the silent cap ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_silent_cap_of_the_recording_is_lifted_by_40_slots() -> None:
    """5 slots each (extra_buffer, overlap): 40. State and scratch grow from 37 + 7 × 16 = 149 slots' bytes to
    40 + 8 × 16 = 168: 19 × 153,944,064 / 86,016 = 34,004.7 tokens. Logged with 40 slots: 546,617 tokens."""
    found = answer("recordings/dflash_r8_full", "running_requests=8", sizes=(1,))
    one = size(found, 1)
    assert one.most[0].requests == 7
    first = one.plans[0]
    assert [(change.kind, change.value) for change in first.changes] == [("slots", 40)] and first.certainty == "sure"
    assert limits(first.budget)[:2] == (40, 8)
    assert abs(limits(first.budget)[2] - 546_617) <= 5
    assert 19 * SLOT // TOKEN == 34_004 and first.costs[0] == "34,005 KV tokens fewer (580,621 → 546,616)"
    assert found.best == first
    gone, come = difference(found.given, first.config)
    assert (gone, come) == ((), ("--max-mamba-cache-size 40",))
    assert why_not(one, "none") == "7 of 8 requests (37 slots, 5 each)"


def why_not(one: Size, kind: str) -> str:
    return next(failure.why for failure in one.failures if failure.kind == kind)


@pytest.mark.parametrize("card", ["gpu.name=rtx-pro-6000", "gpu.emulate=rtx-pro-6000"])
def test_the_same_cap_on_a_card_of_96_gb(card: str) -> None:
    found = answer("recordings/dflash_r8_full", "running_requests=8", card, sizes=(1,))
    one = size(found, 1)
    assert one.most[0].requests == 3 and why_not(one, "none") == "3 of 8 requests (15 slots, 5 each)"
    assert [(change.kind, change.value) for change in one.plans[0].changes] == [("slots", 40)]
    assert limits(one.plans[0].budget)[:2] == (40, 8)
    # what is left for the pools less 168 × SLOT, in tokens
    left = one.plans[0].budget.left
    assert left is not None
    assert limits(one.plans[0].budget)[2] == (left.bytes.point - 168 * SLOT) // TOKEN


def test_that_none_does_is_a_proof_over_the_whole_grid() -> None:
    """8 × 32,768 tokens are 262,144 × 86,016 B = 21.00 GiB; state and scratch of 8 requests of 16 tokens at least
    8 × (3 + 16) × SLOT = 21.79 GiB. The largest fraction, 0.97 × 94.31 GiB, less weights and draft (54.5 GiB) leaves
    36.95 GiB: no setting that keeps types, width and prefix cache can do it on this card."""
    assert 262_144 * TOKEN + 8 * 19 * SLOT > (0.97 * 94.31 - 54.5) * GIB
    found = answer("story/tp2-8-0516", "running_requests=8", "context=32768", *TIGHT, sizes=(1,))
    one = size(found, 1)
    assert one.plans == () and one.complete
    # as it is, without overlap and no_buffer (3 frames) × 93 fractions × (ratio as set, slots given) = 558 candidates;
    # a ratio of 7 others alone, with a fraction (92), with a strategy (2): 7 + 644 + 14
    assert one.tried == 558 + 665
    assert (one.most[0].requests, one.most[-1].level, one.most[-1].requests) == (1, "any", 5)
    assert one.longest_context == 10_419
    assert found.best is not None and (found.best.tp_size, found.best.changes) == (2, ())


def test_the_nearest_that_is_named_does_reach() -> None:
    one = size(answer("story/tp2-8-0516", "running_requests=8", "context=32768", *TIGHT, sizes=(1,)), 1)
    nearest = one.most[-1].plan
    assert nearest is not None and predict(nearest.config).limits["running_requests"].value is not None
    assert limits(predict(nearest.config))[1] >= 5 and limits(predict(nearest.config))[2] >= 5 * 32_768
    assert one.longest_context is not None
    again = answer("story/tp2-8-0516", "running_requests=8", f"context={one.longest_context}", *TIGHT, sizes=(1,))
    assert size(again, 1).plans
    further = answer("story/tp2-8-0516", "running_requests=8", f"context={one.longest_context + 1}", *TIGHT, sizes=(1,))
    assert not size(further, 1).plans


def test_a_known_fault_is_mended_in_the_plan() -> None:
    """NEXTN of 0.5.16 ends at its first full batch with graphs (recorded); without them it served."""
    found = answer("recordings/h200_nextn-4-full-card", "running_requests=4", sizes=(1,))
    assert found.best is not None and found.best.budget.fault is None
    assert [change.kind for change in found.best.changes] == ["graphs"]
    assert difference(found.given, found.best.config) == ((), ("--disable-cuda-graph",))


def test_what_graphs_and_a_prefill_take_outside_the_pools_counts_unless_a_figure_is_stated() -> None:
    """By estimate 0.97 + 2.89 GiB for 8 requests of 16 tokens: at a fraction of 0.9 4.55 - 0.94 = 3.61 GiB are left."""
    need = Need(requests=8, tokens=32_768, slack_bytes=2 * GIB)
    base = {"memory.mem_fraction_static": 0.9, "memory.max_running_requests": 8}
    budget = predict(load_run("params/story/tp1-8.yaml").replace(base))
    slack, taken = budget.terms["slack"].bytes, estimated_outside(budget)
    assert slack is not None and taken is not None
    assert (round(slack.point / GIB, 2), round(taken.point / GIB, 2)) == (3.61, 3.86)
    assert certain(budget, need) is None
    assert "graphs and a full prefill take about 3.86 GiB" in lacking(budget, need)
    assert certain(budget, replace(need, estimated=False)) == "sure"


# ── the search ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_screen_says_of_every_candidate_what_predict_says() -> None:
    """60 candidates of four rules, drawn from the whole grid."""
    drawn = random.Random(4)
    seen = 0
    for version in ("0.5.12", "0.5.16", "0.5.18", "0.5.23"):
        config = (
            load_run("params/story/tp2-8-0516.yaml", [f"engine.version={version}"])
            if version != "0.5.12"
            else (load_run("params/story/tp2-8.yaml"))
        )
        start = frame(config)
        assert isinstance(start, Frame)
        every = grid.combinations(Wishes(), frozenset())
        for kinds in drawn.sample(every, 15):
            outer = drawn.choice(list(grid.outer_changes(kinds, start, Wishes())) or [()])
            one = frame(config, *outer)
            if not isinstance(one, Frame):
                continue
            inner = drawn.choice(list(grid.inner_changes(kinds, one, 8)) or [()])
            found, whole = figures(one, inner), changed(config, *outer, *inner)
            assert whole is not None
            budget = predict(whole)
            running, tokens = budget.limits["running_requests"].value, budget.limits["kv_tokens"].value
            slack = budget.terms["slack"].bytes
            if found.slack_bytes is None:
                assert budget.verdict == "refused"
                continue
            seen += 1
            assert running is not None and tokens is not None
            assert (found.requests, found.tokens) == (running.point, tokens.point)
            assert slack is not None and found.slack_bytes == slack.point
    assert seen > 30


def test_the_search_finds_what_trying_everything_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a small grid of its own: what reaches by `predict` and adds to nothing that surely reaches, neither more nor
    less. SGLang 0.5.16: 5 slots each by extra_buffer with overlap, 4 without, 3 by no_buffer; none without a cache."""
    steps = (0.8, 0.86, 0.92)
    monkeypatch.setattr(changes, "FRACTIONS", steps)
    given = load_run("params/recordings/h200_dflash-8.yaml", ["memory.mamba_full_memory_ratio=null"])
    wishes = Wishes(running_requests=8, context=32_768, slack_bytes=6 * GIB, kv_dtype="auto")
    found = plan(given, wishes, keep=("ratio",), sizes=(1,)).sizes[0]
    need = Need(requests=8, tokens=8 * 32_768, slack_bytes=6 * GIB, estimated=False)

    key, overlap = "memory.mamba_radix_cache_strategy", "memory.disable_overlap_schedule"
    caches: list[tuple[str, int, dict[str, Any]]] = [
        ("", 5, {}),
        ("strategy", 4, {key: "extra_buffer", overlap: True}),
        ("strategy", 3, {key: "no_buffer", overlap: True}),
        ("radix", 0, {"memory.disable_radix_cache": True}),
    ]
    reached: dict[frozenset[str], set[str]] = {}
    for (cache, each, more), fraction, dtype, width, exact in itertools.product(
        caches, (None, *steps), (None, "bfloat16"), (None, 12, 8, 4), (False, True)
    ):
        if exact and not each:
            continue
        given_up = {"fraction": fraction, "state_dtype": dtype, "draft_tokens": width, "slots": exact, cache: cache}
        setting = {
            "memory.mem_fraction_static": fraction,
            "memory.mamba_ssm_dtype": dtype,
            "speculative.num_draft_tokens": width,
            "memory.max_mamba_cache_size": 8 * each if exact else None,
        }
        budget = predict(given.replace({name: value for name, value in setting.items() if value} | more))
        certainty = certain(budget, need)
        if certainty is not None:
            reached.setdefault(frozenset(kind for kind, value in given_up.items() if value), set()).add(certainty)
    sure = [kinds for kinds, how in reached.items() if "sure" in how]
    least = {kinds for kinds in reached if not any(other < kinds for other in sure)}
    planned = {frozenset(change.kind for change in one.changes): one.certainty for one in found.plans}
    assert found.complete and len(planned) >= 4
    for kinds, certainty in planned.items():
        assert certainty == ("sure" if kinds in sure else "likely")
    # of those that are likely only, an addition to another likely one is not told
    assert {kinds for kinds in least if kinds in sure or not any(other < kinds for other in least)} <= set(planned)
    assert set(planned) <= least


def test_the_proof_names_only_what_was_gone_through() -> None:
    found = answer("story/tp2-8-0516", "running_requests=8", "context=32768", *TIGHT, sizes=(1,))
    assert size(found, 1).grid == (
        "the settings as they are; exactly as many slots as needed; ratios of 0.1 to 8; fractions of 0.05 to 0.97 in "
        "hundredths; prefix cache by extra_buffer_lazy, extra_buffer without overlap, no_buffer; and every combination "
        "of these (a ratio with one other at most: exact slots leave more tokens)"
    )
    plain, _ = from_scratch(model="Qwen/Qwen3-8B", gpu="rtx-pro-6000")
    start = frame(plain)
    assert isinstance(start, Frame)
    assert grid.described(Wishes(), frozenset({"radix"}), start) == (
        "the settings as they are; fractions of 0.05 to 0.97 in hundredths; KV in fp8_e4m3; and every combination of "
        "these"
    )


def test_with_slots_kept_a_ratio_goes_with_everything() -> None:
    """Where slots are given exactly no ratio leaves more tokens; where that is barred, ratios are all that is left."""
    many = [kinds for kinds in grid.combinations(Wishes(), frozenset({"slots"})) if "ratio" in kinds.inner]
    few = [kinds for kinds in grid.combinations(Wishes(), frozenset()) if "ratio" in kinds.inner]
    # state, KV and width changed or not, three ways of the cache, fraction or not: 48; alone and with one other: 7
    assert (len(many), len(few)) == (2 * 2 * 2 * 3 * 2, 7)


def test_what_the_pool_must_hold_without_a_context_is_said_in_tokens() -> None:
    """story/tp1-4 states a context of 32,768; of the configuration that `plan --model` makes the longest request of the
    workload counts: 1,024 in and 256 out."""
    assert needs(answer("story/tp1-4", sizes=(1,))).startswith(
        "the KV pool must hold one whole request of 32,768 tokens "
    )
    made, _ = from_scratch(model="Qwen/Qwen3.6-27B", gpu="h200")
    assert one_request(made) == 1_280
    assert one_request(made.replace({"workload.requests": 0, "workload.warmup": 0})) == 0  # nothing is sent


def test_as_many_as_possible_says_what_more_would_run() -> None:
    # 39,653 tokens likely for 10 requests
    text = headline(answer("story/tp1-4", sizes=(1,)))[1]
    assert text == (
        "4 requests at once on 1 × RTX PRO 6000 (TP1): as the settings are. Up to 10, of 3,965 KV tokens each if all "
        "are as long, with max_running_requests 10, max_mamba_cache_size 40, mem_fraction_static 0.88: it costs slack, "
        "KV tokens."
    )


def test_plans_are_in_the_order_of_what_they_cost_and_none_adds_to_another() -> None:
    found = size(answer("story/tp2-8-0516", "running_requests=8", "context=32768", sizes=(1,)), 1)
    order = list(changes.COSTS)
    optional = [{change.kind for change in plan.changes} for plan in found.plans]
    costs = [sorted((order.index(kind) for kind in kinds), reverse=True) for kinds in optional]
    assert costs == sorted(costs) and len(found.plans) >= 3
    for number, plan_ in enumerate(found.plans):
        sure = [optional[k] for k in range(number) if found.plans[k].certainty == "sure"]
        assert not any(kinds <= optional[number] for kinds in sure), plan_.changes
    assert {plan_.certainty for plan_ in found.plans} == {"sure", "likely"}
    assert found.plans[0].changes_results and "accuracy" in " ".join(found.plans[0].costs)


def test_what_is_to_be_kept_is_in_no_plan() -> None:
    found = answer("story/tp1-8", "running_requests=8", keep="fraction draft_tokens", sizes=(1,))
    kinds = {change.kind for one in found.sizes for plan_ in one.plans for change in plan_.changes}
    assert kinds and not kinds & {"fraction", "draft_tokens"}


def test_a_context_beyond_the_stated_one_is_raised_and_a_bound_of_tokens_dropped() -> None:
    config = load_run("params/story/tp2-8-0516.yaml", ["memory.max_total_tokens=100000"])
    found = asking(config, Wishes(context=65_536), 4, 4 * 65_536)
    assert [dict(change.set) for change in found] == [
        {"memory.max_running_requests": 4},
        {"memory.context_length": 65_536},
        {"memory.max_total_tokens": None},
    ]


def test_requests_of_data_parallel_workers_are_shared_as_the_version_does() -> None:
    """8 of the server over two workers of DP attention are 4 each; up to 0.5.13 plain workers share as well."""
    config = load_run(
        "params/story/tp2-8-0516.yaml",
        ["speculative.algorithm=none", "speculative.draft_model_path=null", "speculative.num_draft_tokens=null"],
    )
    dp = config.replace({"parallel": {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True}})
    assert [dict(change.set) for change in asking(dp, Wishes(), 3, 0)] == [{"memory.max_running_requests": 6}]
    plain = config.replace({"parallel": {"tp_size": 1, "dp_size": 2}})
    assert [dict(change.set) for change in asking(plain, Wishes(), 3, 0)] == [{"memory.max_running_requests": 3}]


def test_what_one_is_to_be_careful_about_is_said() -> None:
    """DFLASH of 0.5.16 with 8 places waits for min(4, max(2, (8 + 5) // 6)) = 2 free ones."""
    best = answer("recordings/dflash_r8_full", "running_requests=8", sizes=(1,)).best
    assert best is not None
    waits = "while requests run, a server with 8 places admits nothing before 2 are free (min(4, max(2, (8 "
    assert [text.startswith(waits) for text in cautions(best)].count(True) == 1
    dp = ["parallel.dp_size=2", "parallel.enable_dp_attention=true"]
    shared = answer("recordings/tp2_nospec_r8", "running_requests=15", *dp, sizes=(2,))
    assert any("whose 2 data-parallel workers share it" in note for note in shared.notes)
    assert shared.best is not None and shared.best.config.memory.max_running_requests == 16  # 8 each
    assert limits(shared.best.budget)[1] == 8


def test_another_algorithm_brings_no_width_of_the_old_one() -> None:
    config = load_run("params/story/tp1-8.yaml")
    none = with_wishes(config, Wishes(algorithm="none"))
    assert none.speculative.model_dump(exclude_unset=True) == {"algorithm": "none"}
    assert with_wishes(config, Wishes(algorithm="DFLASH")) == config
    kept = with_wishes(config, Wishes(draft_tokens=24))
    assert kept.speculative.num_draft_tokens == 24


def test_a_model_without_state_has_no_slots_to_give() -> None:
    found = frame(load_run("params/story/tp1-8.yaml"))
    assert isinstance(found, Frame) and list(changes.strategies(found.resolved))
    kinds = grid.Kinds(("state_dtype",), ("slots", "fraction"))
    assert kinds.cost == (5, 4, 2)  # the dearest first: state_dtype, fraction, slots


def test_the_command_line_is_whole_and_says_what_differs() -> None:
    found = answer("story/tp1-8", "running_requests=8")
    first = found.best
    assert first is not None
    assert difference(found.given, first.config) == (("--mem-fraction-static 0.75",), ("--mem-fraction-static 0.89",))
    line = shell_line(first.config)
    assert line.startswith("python -m sglang.launch_server --model-path Qwen/Qwen3.6-27B --host 127.0.0.1 --port 30000")
    assert "--speculative-algorithm DFLASH --speculative-draft-model-path z-lab/Qwen3.6-27B-DFlash" in line


# ── wishes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("runing_requests=8", "no such wish (did you mean 'running_requests'?)", "Wishes: running_requests, context"),
        ("running_requests", "no NAME=VALUE", "e.g. running_requests=8"),
        ("running_requests=0", "got '0'", "a whole number from 1 to 100,000"),
        ("running_requests=-3", "got '-3'", "a whole number from 1 to 100,000"),
        ("running_requests=1e9", "got '1e9'", "a whole number"),
        ("running_requests=٣", "got '٣'", "a whole number"),
        ("context=2147483648", "got '2147483648'", "from 1 to 2,147,483,647"),
        ("state_dtype=int8", "got 'int8'", "float32, bfloat16, float16"),
        ("prefix_cache=maybe", "got 'maybe'", "true or false"),
        ("slack_gib=nan", "got 'nan'", "GiB, from 0"),
    ],
)
def test_a_wish_that_is_none_is_told_in_two_lines(text: str, first: str, second: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse([text])
    lines = str(told.value).splitlines()
    assert len(lines) == 2 and first in lines[0] and second in lines[1]


def test_wishes_that_contradict_one_another_or_the_model() -> None:
    with pytest.raises(ConfigError, match=r"given twice.*\nKeep one"):
        parse(["context=1", "context=2"])
    with pytest.raises(ConfigError, match=r"nothing says how many share"):
        parse(["context=32768", "kv_tokens=100000"])
    config = load_run("params/story/tp1-8.yaml")
    with pytest.raises(ConfigError, match=r"context of 262,144 tokens\.\nWish for at most 262,144"):
        with_wishes(config, parse(["context=300000"]))
    with pytest.raises(ConfigError, match=r"nothing is drafted without.*\nWish for one"):
        with_wishes(config, parse(["algorithm=none", "draft_tokens=4"]))


def test_tokens_that_are_needed() -> None:
    assert parse(["running_requests=8", "context=32_768"]).tokens(8, 0) == 262_144
    assert parse(["running_requests=8", "kv_tokens=100,000"]).tokens(8, 32_768) == 100_000
    assert parse(["running_requests=8"]).tokens(8, 32_768) == 32_768  # one whole request
    assert of_mapping({"running_requests": 8, "context": None}) == Wishes(running_requests=8)
    assert parse(["slack_gib=3.5"]).slack_bytes == 3_758_096_384
    words = parse(["running_requests=8", "context=32768", "state_dtype=float32"]).words
    assert words == "8 requests at once, each of 32,768 tokens (262,144 KV tokens together); state stays float32"


@pytest.mark.parametrize(
    ("algorithm", "wished", "flags"),
    [
        # a chain of 9 tokens of the EAGLE family is 8 steps; the engine takes all three or none
        ("NEXTN", 9, {"num_draft_tokens": 9, "num_steps": 8, "eagle_topk": 1}),
        ("NEXTN", 4, {"num_draft_tokens": None, "num_steps": None, "eagle_topk": None}),  # 4 by default
        ("DFLASH", 24, {"num_draft_tokens": 24, "num_steps": None, "eagle_topk": None}),  # the draft's block is 16
        ("DFLASH", 16, {"num_draft_tokens": None, "num_steps": None, "eagle_topk": None}),
    ],
)
def test_the_least_draft_tokens_are_set_where_the_engine_would_draft_fewer(
    algorithm: str, wished: int, flags: dict[str, int | None]
) -> None:
    config, _ = from_scratch(model="Qwen/Qwen3.6-27B", gpu="h200", algorithm=algorithm)
    found = with_wishes(config, Wishes(draft_tokens=wished)).speculative
    assert {name: getattr(found, name) for name in flags} == flags


def test_what_is_no_number_of_cards_or_kind_is_told() -> None:
    config = load_run("params/story/tp1-8.yaml")
    for gpus in (0, -1, 10**12, True):
        with pytest.raises(ConfigError, match=r"--gpus: got .*\n.*1 to 1,024"):
            plan(config, {}, gpus=gpus)
    with pytest.raises(ConfigError, match=r"--keep 'everything' \(text\): no such kind"):
        plan(config, {}, keep=["everything"])
    with pytest.raises(ConfigError, match=r"draft_model_path: got ''"):
        plan(config, {}, draft="")
    with pytest.raises(ConfigError, match=r"draft_model_path: got ''"):
        from_scratch(model="Qwen/Qwen3.6-27B", gpu="h200", algorithm="DFLASH", draft="")
    with pytest.raises(ConfigError, match=r"want running_requests: got '9"):
        parse(["running_requests=" + "9" * 5_000])
    assert parse(["context=32_768"]).context == 32_768


@pytest.mark.parametrize(
    ("works_up_to", "most", "at_least", "expected"),
    [
        (0, 4096, 0, 0),  # not even one
        (13, 4096, 0, 13),
        (13, 4096, 5, 13),
        (13, 4096, 20, 13),  # what to begin with does not work itself
        (5000, 4096, 0, 4096),  # no more are asked for
        (4096, 4096, 4096, 4096),
    ],
)
def test_the_largest_number_that_works(works_up_to, most, at_least, expected):
    asked: list[int] = []

    def works(number: int) -> bool:
        asked.append(number)
        return number <= works_up_to

    assert largest(works, most, at_least) == expected
    assert len(asked) <= 26  # twice the 12 halvings of 4096, and the two to begin with
    assert max(asked) <= most


def test_a_cheaper_plan_that_is_only_likely_is_told_beside_the_sure_one() -> None:
    """Eight RTX 4090 for 16 requests of 32,768 tokens with NEXTN: sure by rounding the state, likely without."""
    config = load_run("params/story/tp8-8.yaml").replace(
        {
            "engine.version": "0.5.23",
            "gpu.name": "rtx-4090",
            "speculative": {"algorithm": "NEXTN"},
            "memory": {},
        }
    )
    found = plan(config, {"running_requests": 16, "context": 32_768}, sizes=(8,))
    best, first = found.best, found.sizes[0].plans[0]
    assert best is not None and (best.certainty, first.certainty) == ("sure", "likely")
    assert "mamba_ssm_dtype bfloat16" in headline(found)[1]
    assert cheaper(found) == (
        "cheaper, but only likely: max_running_requests 16, mem_fraction_static 0.82, max_mamba_cache_size 80; "
        "costs: slack, KV tokens"
    )
    assert also_asked(found) == "beside the flags that are listed each needs --max-running-requests 16, as asked"


def test_a_plan_that_is_the_first_has_no_cheaper_one() -> None:
    assert cheaper(answer("story/tp1-8", "running_requests=8", sizes=(1,))) is None
    assert also_asked(answer("story/tp1-8", "running_requests=8", sizes=(1,))) == ""  # 8 are asked there already


def test_where_the_most_is_wished_and_nothing_fits_no_candidates_are_counted() -> None:
    config = load_run("params/story/tp1-8.yaml").replace({"gpu.name": "rtx-4090"})
    found = plan(config, {"context": 32_768}, sizes=(1,))
    (told,) = of_size(found, found.sizes[0])
    assert told.startswith("not one such request runs with the settings as they are, nor with state slots given")


def test_a_default_fraction_that_follows_the_plan_says_so() -> None:
    """SGLang computes it from the requests as well: 0.76848 for 16 on four H100s, 0.7574 for as many as it takes."""
    config = load_run("params/story/tp4-8.yaml").replace(
        {"engine.version": "0.5.23", "gpu.name": "h100", "memory": {}, "speculative.num_draft_tokens": None}
    )
    found = plan(config, {"running_requests": 16, "context": 32_768}, sizes=(4,))
    assert found.best is not None
    assert rests_on(found.best).endswith(
        "mem_fraction_static 0.76848 (default of sglang 0.5.23 for what this plan sets)"
    )
    assert "mem_fraction_static as it is: 0.7574 (default of sglang 0.5.23)" in bases(found)


def test_a_grid_is_described_once() -> None:
    config = load_run("params/story/tp1-8.yaml").replace({"gpu.name": "rtx-4090"})
    found = plan(config, {"running_requests": 64, "context": 32_768}, sizes=(1, 2))
    first, second = (next(of_size(found, one)) for one in found.sizes)
    assert "(the whole grid: the settings as they are; " in first
    assert "(the whole grid that TP1 was searched in; each predicted" in second
