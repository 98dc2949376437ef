"""Budgets on both bases: against every recorded server that printed its pools, then intervals, verdicts and words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specbench.budget.limits import kv_tokens
from specbench.budget.predict import predict
from specbench.budget.to_json import to_document
from specbench.budget_types import FreeMemory, MemoryBudget
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.demand import demand, units
from specbench.engines.sglang.offsets import measured_free
from specbench.engines.sglang.resolve import settings as resolve
from specbench.engines.sglang.sizing import rule_for
from specbench.engines.sglang.sizing.span import span
from specbench.engines.sglang.sizing.steps import solve
from specbench.errors import ConfigError
from specbench.terms import TERMS, Limit
from specbench.units import GIB, MIB, Interval, gib_text_to_quantity

from .measured_runs import RUNS, Run

#: Offsets are known to about a token for these (measured, or several runs at two or more fractions each).
EXACT = {
    *("0512_dflash_r4", "0512_dflash_r4_exact", "0512_dflash_r8", "0512_dflash_r8_exact", "0512_dflash_r8_nograph"),
    *(
        "cal_0512_dflash_r1",
        "0512_nospec_r8",
        "dflash_r4",
        "dflash_r8",
        "dflash_r8_full",
        "dflash_r8_full_sim",
        "oom_r8",
    ),
    *("smoke_dflash_r4", "var_block8_r4", "var_maxmamba20_r4", "var_nobuffer_r4", "var_noradix_r4", "var_ratio09_r4"),
    *("nospec_r4", "nospec_r8", "nospec_defaults", "tp2_dflash_r8", "tp2_dflash_r32_full"),
    *("tp2_nospec_r8", "tp2_0512_dflash_r8"),
    *("nextn_r4_full", "nextn_r4_full_nodeepgemm"),
}


def logged(run: Run) -> FreeMemory:
    return measured_free(
        run.version, run.algorithm, run.tp, "h200", gib_text_to_quantity(run.pre), gib_text_to_quantity(run.post)
    )


def value(budget: MemoryBudget, limit: Limit) -> Interval:
    found = budget.limits[limit].value
    assert found is not None, limit
    return found


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_measured_basis(run: Run) -> None:
    free = logged(run)
    budget = predict(run.config, free=free)
    assert budget.basis == "measured"
    narrow = free.pre.high - free.pre.low == free.post.high - free.post.low == 2 * MIB
    assert narrow == (run.name in EXACT)
    slots, tokens, requests = (value(budget, name) for name in ("state_slots", "kv_tokens", "running_requests"))
    if run.name in EXACT:
        assert slots == Interval.exact(run.slots)
        assert abs(tokens.point - run.tokens) <= 3
        assert tokens.high - tokens.low <= 2 * 48  # one token is 21 to 86 kB of a rank
    else:
        assert slots.low < slots.high or tokens.low < tokens.high
    assert slots.contains(run.slots) and tokens.contains(run.tokens)
    if run.requests is not None:
        assert requests.point == run.requests


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_config_basis_contains_what_was_logged(run: Run) -> None:
    budget = predict(run.config)
    assert budget.basis == "config"
    assert value(budget, "state_slots").contains(run.slots)
    assert value(budget, "kv_tokens").contains(run.tokens)
    pre, post = gib_text_to_quantity(run.pre), gib_text_to_quantity(run.post)
    assert budget.free.pre.low - 0.09 * GIB <= pre.bytes <= budget.free.pre.high
    assert budget.free.post.low <= post.bytes <= budget.free.post.high + 0.13 * GIB


#: GiB as logged: conv, ssm, scratch ssm, scratch conv, K + V of the target, K + V of the draft.
POOLS: dict[str, tuple[float | None, ...]] = {
    "0512_dflash_r4_exact": (0.07, 3.52, 11.25, 0.22, 5.32, 1.66),
    "0512_dflash_r8_exact": (0.01, 0.42, 2.25, 0.04, 0.72, None),
    "cal_0512_dflash_r1": (0.14, 7.17, 4.50, 0.09, 11.10, 3.46),
    "dflash_r8": (0.02, 1.27, 4.50, 0.03, 9.66, 3.02),
    "dflash_r8_full": (0.10, 5.34, 18.00, 0.13, 35.44, 11.08),
    "var_block8_r4": (0.04, 2.11, 3.38, 0.03, 9.00, 2.82),
    "var_noradix_r4": (0.01, 0.70, 11.25, 0.08, 4.84, 1.52),
    "nextn_r4_full": (0.24, 12.09, 2.81, 0.03, 51.34, 3.20),
    "ngram_r8": (0.12, 6.33, 15.19, 0.30, 26.22, 0.0),
    "q35b_nextn_r16": (0.30, 12.71, 3.98, 0.05, 32.46, 3.24),
    "nospec_r8": (0.13, 6.47, 0.0, 0.0, 13.14, 0.0),
    "tp2_dflash_r32_full": (0.14, 7.38, 23.62, 0.17, 48.48, 15.16),
    "tp4_0512_dflash_r8": (0.34, 17.19, 5.06, 0.10, 26.72, 8.34),
}


@pytest.mark.parametrize("name", POOLS)
def test_bytes_of_every_pool(name: str) -> None:
    run = next(run for run in RUNS if run.name == name)
    budget = predict(run.config, free=logged(run))
    terms = ("state_conv", "state_ssm", "scratch_ssm", "scratch_conv", "kv", "draft_kv")
    for term, expected in zip(terms, POOLS[name], strict=True):
        size = budget.terms[term].bytes  # type: ignore[index]
        if expected is None:
            assert size is None, term
            continue
        assert size is not None, term
        # K and V are printed one by one, to 0.01 GiB each
        assert size.point / GIB == pytest.approx(expected, abs=0.0101 if term.endswith("kv") else 0.0051), term


#: "Memory pool end. avail mem" after the last pool, plus graphs captured before it (0.5.12), GiB.
SLACK = {
    "0512_dflash_r4": 61.96 + 0.59,
    "0512_dflash_r4_exact": 62.47,
    "cal_0512_dflash_r1": 58.08,
    "0512_nospec_r8": 41.55,
    "dflash_r8": 66.04,
    "dflash_r8_full": 14.40,
    "var_noradix_r4": 66.14,
    "nospec_defaults": 21.91,
    "nextn_r4_full": 12.77,
    "q35b_nextn_r16": 17.32,
    "tp2_dflash_r32_full": 15.64,
    "tp4_dflash_r8": 67.21,
}


@pytest.mark.parametrize("name", SLACK)
def test_slack(name: str) -> None:
    run = next(run for run in RUNS if run.name == name)
    slack = predict(run.config, free=logged(run)).terms["slack"].bytes
    assert slack is not None
    assert slack.low / GIB - 0.005 <= SLACK[name] <= slack.high / GIB + 0.005


# ── starts that fail ─────────────────────────────────────────────────────────────────────────────────────────────────


def by_name(name: str) -> Run:
    return next(run for run in RUNS if run.name == name)


def test_a_start_that_asks_for_too_much_scratch() -> None:
    """0512_dflash_r16: -40 slots by the solver, and this text in the log."""
    run = by_name("0512_dflash_r8").config.replace({"memory.max_running_requests": 16})
    budget = predict(run, free=logged(by_name("0512_dflash_r8")))
    assert budget.verdict == "refused"
    assert budget.engine_error == "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    assert value(budget, "state_slots").point == 0
    assert value(budget, "running_requests").point == 0
    assert budget.limits["kv_tokens"].value is None
    assert budget.terms["kv"].bytes is None and budget.terms["slack"].bytes is None
    assert "36.70 GiB" in budget.reason  # 16 × 2.2939


def test_no_room_is_blamed_on_the_weights() -> None:
    """var_noradix_r8: the text is SGLang's, with its figures."""
    run = by_name("var_noradix_r4").config.replace({"memory.max_running_requests": 8})
    budget = predict(run, free=logged(by_name("var_noradix_r4")))
    assert budget.verdict == "refused"
    assert budget.engine_error == (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.508124. "
        "Raise --mem-fraction-static above 0.393 (minimum viable = 1 - available/pre = 0.3924). "
        "If using speculative decoding, draft weights are now counted."
    )


def test_zero_requests_die_later_with_graphs_than_without() -> None:
    assert predict(by_name("0512_dflash_r8").config, free=logged(by_name("0512_dflash_r8"))).engine_error == (
        "AssertionError: capture_bs=[0]"
    )
    nograph = by_name("0512_dflash_r8_exact")
    assert predict(nograph.config, free=logged(nograph)).engine_error == "AssertionError: max_running_request is zero"


def test_the_target_fits_and_the_draft_does_not() -> None:
    """oom_r8: the target got its 45.1 GiB of KV, the draft's pool ran out of memory."""
    run = by_name("oom_r8")
    budget = predict(run.config, free=logged(run))
    assert budget.verdict == "refused"
    assert budget.engine_error == "torch.OutOfMemoryError: CUDA out of memory."
    kv, slack = budget.terms["kv"].bytes, budget.terms["slack"].bytes
    assert kv is not None and kv.point / GIB == pytest.approx(45.12, abs=0.01)
    assert slack is not None and slack.high < 0


def test_arguments_that_the_engine_refuses() -> None:
    """var_nobuffer_r4_badargs: refused before anything is loaded."""
    run = by_name("var_nobuffer_r4").config.replace({"memory.disable_overlap_schedule": False})
    budget = predict(run)
    assert budget.verdict == "refused" and budget.verdicts == ("refused",)
    assert budget.engine_error == (
        "AssertionError: no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True."
    )
    assert all(term.bytes is None for term in budget.terms.values())
    assert all(limit.value is None for limit in budget.limits.values())
    assert "memory.disable_overlap_schedule" in budget.reason


def test_texts_of_refusals_by_version() -> None:
    def refused(version: str, **memory: Any) -> str | None:
        run = by_name("dflash_r8").config.replace({"engine.version": version, **memory})
        pre, post = Interval.exact(94 * GIB), Interval.exact(int(94 * 0.25 * GIB) + 5 * GIB)
        return predict(run.replace({"memory.mem_fraction_static": 0.75}), pre_bytes=pre, post_bytes=post).engine_error

    slots = {"memory.mamba_radix_cache_strategy": "extra_buffer", "memory.mamba_full_memory_ratio": 0.1}
    # 5 GiB × 0.1 / 1.1 = 0.4545 GiB; a slot with its scratch takes 0.602: none. rest is printed after the scratch.
    assert refused("0.5.16", **slots) == (
        "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
        "max_mamba_cache_size=0 (total_rest_memory=5.00 GB, mamba_cache_per_req=146.81 MB). Try: (1) reduce "
        "--max-running-requests, (2) increase --mem-fraction-static, (3) reduce --speculative-num-draft-tokens, or "
        "(4) use GPUs with more memory."
    )
    assert refused("0.5.16", **slots | {"memory.mamba_full_memory_ratio": 1.0}) == (
        "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
        "max_mamba_cache_size=4, mamba_ratio=5, resulting max_num_reqs=0. Try: (1) reduce --max-running-requests, "
        "(2) increase --mem-fraction-static, or (3) use GPUs with more memory."
    )


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("0.5.8", "Current value: self.server_args.mem_fraction_static=0.75"),
        ("0.5.10", "Current value: mem_fraction_static=0.75"),
        ("0.5.12", "--mem-fraction-static."),
    ],
)
def test_not_enough_memory_names_the_fraction_where_it_can(version: str, text: str) -> None:
    run = RunConfig.model_validate(
        {
            "name": "old",
            "engine": {"version": version},
            "model": "Qwen/Qwen3-Next-80B-A3B-Instruct",
            "gpu": {"name": "rtx-pro-6000"},
            "speculative": {"algorithm": "NEXTN"},
            "memory": {"mem_fraction_static": 0.75, "mamba_radix_cache_strategy": "extra_buffer"},
        }
    )
    budget = predict(run, pre_bytes=Interval.exact(94 * GIB), post_bytes=Interval.exact(20 * GIB))
    assert budget.engine_error is not None and budget.engine_error.endswith(text)


# ── intervals ────────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(
    version=st.sampled_from(["0.5.12", "0.5.13", "0.5.16", "0.5.23"]),
    requests=st.sampled_from([1, 4, 8, None]),
    ratio=st.sampled_from([0.3, 0.5, 0.9]),
    start=st.floats(6, 40),
    width=st.floats(0.01, 3),
)
@example(version="0.5.23", requests=8, ratio=0.9, start=-40.0, width=80.0)  # most of it is refused: no slot at all
@example(version="0.5.12", requests=8, ratio=0.3, start=15.875, width=2.5)  # refused by slots fewer than none
def test_no_amount_of_memory_in_the_interval_gives_more_or_less(
    version: str, requests: int | None, ratio: float, start: float, width: float
) -> None:
    """Tokens are a sawtooth over free memory: compare with a fine sweep."""
    run = by_name("dflash_r8").config.replace(
        {
            "engine.version": version,
            "memory.mamba_radix_cache_strategy": "extra_buffer",
            "memory.mamba_full_memory_ratio": ratio,
            "memory.max_running_requests": requests,
        }
    )
    resolved = resolve(run)
    wanted = demand(resolved, *units(resolved))
    rule = rule_for(version)
    found = span(rule, wanted, start, start + width / 2, start + width)
    tokens = [count for solved in found.all if (count := kv_tokens(solved.pools)) is not None]
    slots = [solved.pools.slots for solved in found.all]
    for step in range(201):
        pools = solve(rule, wanted, start + width * step / 200)
        assert min(slots) <= pools.slots <= max(slots)
        if (count := kv_tokens(pools)) is not None:  # of pools that are refused nobody is told tokens
            assert min(tokens) <= count <= max(tokens)


def test_the_ends_alone_would_miss_the_extremes() -> None:
    run = by_name("ngram_r8")
    budget = predict(run.config, free=logged(run))
    ends = [
        predict(run.config, pre_bytes=Interval.exact(pre), post_bytes=Interval.exact(post))
        for pre, post in (
            (budget.free.pre.high, budget.free.post.low),
            (budget.free.pre.low, budget.free.post.high),
        )
    ]
    tokens = value(budget, "kv_tokens")
    at_ends = sorted(value(end, "kv_tokens").point for end in ends)
    assert value(ends[0], "state_slots").point == 44 and value(ends[1], "state_slots").point == 45
    assert tokens.low < at_ends[0] or tokens.high > at_ends[1]


def test_a_point_gives_a_point() -> None:
    budget = predict(
        by_name("dflash_r8").config, pre_bytes=Interval.exact(139 * GIB), post_bytes=Interval.exact(84 * GIB)
    )
    assert all(limit.value is not None and limit.value.is_exact for limit in budget.limits.values())
    assert budget.free.source.startswith("given")


def test_verdicts_over_the_interval() -> None:
    free = FreeMemory(pre=Interval.exact(94 * GIB), post=Interval(40 * GIB, 43 * GIB, 60 * GIB), source="hand-made")
    run = by_name("0512_dflash_r8").config.replace({"memory.mem_fraction_static": 0.75})
    budget = predict(run, free=free)
    assert budget.verdict == "refused"
    assert set(budget.verdicts) == {"refused", "capped", "serves"}


# ── input that makes no sense ────────────────────────────────────────────────────────────────────────────────────────


def test_half_a_measurement_is_refused() -> None:
    with pytest.raises(ConfigError, match="only one of the two"):
        predict(by_name("dflash_r8").config, pre_bytes=Interval.exact(GIB))


def test_more_free_after_loading_is_refused() -> None:
    with pytest.raises(ConfigError, match="more is free after loading"):
        predict(by_name("dflash_r8").config, pre_bytes=Interval.exact(GIB), post_bytes=Interval.exact(2 * GIB))


def test_splits_whose_weights_are_not_modelled_need_a_measurement() -> None:
    run = by_name("nospec_r8").config
    parallel = {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True}
    changed = {"model": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "parallel": parallel}
    split = RunConfig.model_validate(run.to_sections() | changed | {"gpu": {"name": "h200", "count": 2}})
    with pytest.raises(ConfigError, match="--pre-gib and --post-gib"):
        predict(split)
    measured = predict(split, pre_bytes=Interval.exact(138 * GIB), post_bytes=Interval.exact(112 * GIB))
    assert measured.verdict == "serves"
    assert measured.terms["weights"].bytes is None


# ── the document ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_json_document() -> None:
    run = by_name("0512_dflash_r4_exact")
    found = to_document(
        predict(
            run.config.replace({"memory.mem_fraction_static": 0.75}),
            pre_bytes=Interval.exact(round(94.40 * GIB)),
            post_bytes=Interval.exact(round((94.40 - 51.2089) * GIB)),
        )
    )
    assert found["schema"] == 1
    assert found["engine"] == {"name": "sglang", "version": "0.5.12"}
    assert found["basis"] == "measured"
    assert found["requested"] == {"running_requests": 4}
    assert found["limits"] == {
        "kv_tokens": 87061,
        "state_slots": 24,
        "slots_per_request": 4,
        "running_requests": 4,
        "context_len": 32768,
        "max_input_tokens": 32762,
    }
    assert found["verdict"] == "serves" and found["engine_error"] is None
    sizes = found["bytes"]
    assert sizes["state_conv"] == 48 * 25 * 61_440
    assert sizes["state_ssm"] == 48 * 25 * 3_145_728
    assert sizes["scratch_ssm"] == 48 * 5 * 16 * 3_145_728
    assert sizes["scratch_conv"] == 48 * 5 * 16 * 61_440
    assert sizes["kv"] == 87_062 * 65_536
    assert sizes["draft_kv"] == 87_062 * 20_480
    assert sizes["graphs"] == 722_324_030  # 0.67 GiB, an estimate: data/outside.yaml
    assert found["estimated"] == ["graphs"] and "graphs" in found["intervals"]
    assert set(sizes) == set(TERMS) - {"unexplained"}


def test_every_term_and_limit_has_a_formula_and_a_rule() -> None:
    for run in RUNS:
        budget = predict(run.config)
        for predicted in (*budget.terms.values(), *budget.limits.values()):
            assert predicted.formula and predicted.rule
        graphs = budget.terms["graphs"]
        if graphs.bytes is None:
            assert graphs.formula.startswith("not predicted")
        elif graphs.bytes.is_exact:
            assert graphs.bytes.point == 0 and graphs.formula == "no CUDA graphs: they are turned off"
        else:
            assert graphs.estimated and graphs.formula.startswith("estimated: ")
        assert [name for name, term in budget.terms.items() if term.estimated] in ([], ["graphs"])


def test_formulas_show_their_figures() -> None:
    run = by_name("0512_dflash_r8")
    budget = predict(run.config, free=logged(run))
    assert budget.limits["state_slots"].numbers == (
        "(19.5890 GiB - 8 × 16 × 153,944,064 B) × 0.5 / (1 + 0.5) // 153,944,064 B = 2"
    )
    assert budget.terms["state_ssm"].numbers == "(2 + 1) × 150,994,944 B = 452,984,832 B"
    assert "2 state slots are fewer than the 4 of one request" in budget.reason


# ── offsets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_offsets_are_narrow_only_for_the_figures_they_were_fitted_to() -> None:
    same = measured_free("0.5.16", "DFLASH", 1, "h200", gib_text_to_quantity("139.13"), gib_text_to_quantity("84.68"))
    other = measured_free("0.5.16", "DFLASH", 1, "h200", gib_text_to_quantity("139.20"), gib_text_to_quantity("84.75"))
    assert same.pre.high - same.pre.low == same.post.high - same.post.low == 2 * MIB
    assert same.pre.point == round(139.13 * GIB) + round(0.06366 * GIB)
    assert "17 runs at 5 fractions" in same.source
    # each printed figure, and each offset, is known to ± 0.005 GiB
    assert other.pre.high - other.pre.low == pytest.approx(0.02 * GIB, rel=0.001)


@pytest.mark.parametrize(
    ("version", "algorithm", "tp", "gpu"),
    [
        ("0.5.13", "DFLASH", 1, "h200"),
        ("0.5.16", "DFLASH", 8, "h200"),
        ("0.5.16", "DFLASH", 1, "rtx-pro-6000"),
        ("0.5.12", "NEXTN", 1, "h200"),
    ],
)
def test_unknown_offsets_leave_an_interval_and_say_so(version: str, algorithm: str, tp: int, gpu: str) -> None:
    free = measured_free(version, algorithm, tp, gpu, gib_text_to_quantity("94.40"), gib_text_to_quantity("43.19"))
    assert (free.post.high - free.post.low) / GIB == pytest.approx(0.13, abs=0.001)
    assert "not measured for this version, algorithm, TP and card" in free.source


def test_every_row_of_offsets_says_what_it_rests_on() -> None:
    import yaml

    from specbench.paths import DATA

    table = yaml.safe_load((DATA / "offsets.yaml").read_text(encoding="utf-8"))
    for row in table["rows"]:
        assert row["source"] and row["runs"] >= 1 and row["fractions"] >= 1
        told_apart = row["source"].startswith("measured by NVML") or (row["runs"] >= 2 and row["fractions"] >= 2)
        assert told_apart or not row["exact"], row


#: The model of params/live: 3 linear layers (4 key and 8 value heads of 64), 1 attention layer (4 KV heads of 64).
ON_CPU = {
    "name": "live",
    "engine": {"version": "0.5.23", "args": {"device": "cpu", "load-format": "dummy"}},
    "model": "live/models/tiny-hybrid",
    "gpu": {"name": "cpu"},
    "speculative": {
        "algorithm": "DFLASH",
        "draft_model_path": "live/models/tiny-hybrid-dflash",
        "num_draft_tokens": 8,
    },
    "memory": {
        "mem_fraction_static": 0.5,
        "max_mamba_cache_size": 24,
        "max_total_tokens": 16384,
        "max_running_requests": 4,
        "mamba_radix_cache_strategy": "no_buffer",
        "disable_overlap_schedule": True,
    },
}


def test_pinned_pools_are_exact_on_a_host_whose_memory_is_unknown() -> None:
    budget = predict(RunConfig.model_validate(ON_CPU))
    assert {name: limit.value for name, limit in budget.limits.items() if limit.value is not None} == {
        "state_slots": Interval.exact(24),
        "slots_per_request": Interval.exact(3),
        "running_requests": Interval.exact(4),
        "kv_tokens": Interval.exact(16384),
        "context_len": Interval.exact(4096),
        "max_input_tokens": Interval.exact(4090),
    }
    exact = {
        name: term.bytes.point
        for name, term in budget.terms.items()
        if term.bytes and term.bytes.low == term.bytes.high
    }
    assert exact == {
        "state_conv": 25 * 3 * 1024 * 3 * 2,  # (slots + 1) × layers × channels × window × 2 B
        "state_ssm": 25 * 3 * 8 * 64 * 64 * 4,
        "scratch_ssm": 5 * 8 * 3 * 8 * 64 * 64 * 4,  # (requests + 1) × draft tokens × …
        "scratch_conv": 5 * 8 * 3 * 1024 * 3 * 2,  # whole windows: columns are shared on a GPU only
        "kv": 16385 * 2 * 4 * 64 * 2,
        "draft_kv": 16385 * 2 * 2 * 4 * 64 * 2,
    }
    assert budget.free.source.startswith("GPU table, cpu: assumed: no card; ")
    slack = budget.terms["slack"]
    for term in (slack, budget.terms["weights"], budget.terms["draft_weights"]):
        assert term.bytes is None and "changes with everything that runs there" in term.formula
    assert not any("device" in warning for warning in budget.warnings)


def test_a_host_has_no_default_fraction_and_stands_for_no_card() -> None:
    memory = {key: value for key, value in ON_CPU["memory"].items() if key != "mem_fraction_static"}
    with pytest.raises(ConfigError, match=r"memory\.mem_fraction_static: left out, and cpu has no total"):
        predict(RunConfig.model_validate(ON_CPU | {"memory": memory}))
    with pytest.raises(ConfigError, match=r"gpu\.emulate: a CPU has no memory of its own"):
        predict(RunConfig.model_validate(ON_CPU | {"gpu": {"name": "cpu", "emulate": "h200"}}))


@pytest.mark.parametrize(
    ("gpus", "tp", "said"),
    [
        (4, 1, "3 GPUs stay idle: gpu.count is 4, and the server uses 1 (tp 1 × pp 1 × dp 1)."),
        (3, 2, "1 GPU stays idle: gpu.count is 3, and the server uses 2 (tp 2 × pp 1 × dp 1)."),
        (2, 2, None),
    ],
)
def test_gpus_that_no_rank_uses_are_told(gpus: int, tp: int, said: str | None) -> None:
    sections = {
        "name": "idle",
        "engine": {"version": "0.5.16"},
        "model": "Qwen/Qwen3.6-27B",
        "gpu": {"name": "h200", "count": gpus},
        "parallel": {"tp_size": tp},
    }
    budget = predict(RunConfig.model_validate(sections))
    assert [warning for warning in budget.warnings if "idle" in warning] == ([] if said is None else [said])


def test_what_is_read_late_is_not_known_of_another_load() -> None:
    """Offsets were measured while 51.06 GiB loaded (139.13 - 88.07). A log of 32.06 (Qwen3-32B in fp8) had 324,500
    tokens of 262,144 B, 63 more than those offsets give: 0.0154 GiB were not taken late."""
    known = measured_free("0.5.16", "none", 1, "h200", *map(gib_text_to_quantity, ("139.11", "88.05")))
    other = measured_free("0.5.16", "none", 1, "h200", *map(gib_text_to_quantity, ("139.12", "107.06")))
    late = round(0.01501 * GIB)
    rounding = gib_text_to_quantity("88.05").resolution_bytes
    assert known.post.high - known.post.low == 4 * rounding  # of the log, and of the fit
    assert other.post.point == gib_text_to_quantity("107.06").bytes - late
    assert other.post.high == gib_text_to_quantity("107.06").bytes + rounding  # nothing taken late
    assert other.post.low < other.post.point - round(0.1 * GIB)
