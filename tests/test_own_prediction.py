"""Remedies of a log whose model specbench does not know, on its own figures: each held against what the known model
gives, for recorded starts whose model is taken away and for starts of other models and versions that are computed."""

from __future__ import annotations

import dataclasses
import functools
import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from specbench.budget.predict import predict, solved
from specbench.budget_types import FreeMemory
from specbench.cli.diagnosis_text import render
from specbench.configuration.config import RunConfig
from specbench.diagnose.diagnosis import of_log
from specbench.diagnose.document import to_document
from specbench.diagnose.fromlog import config_of_log
from specbench.diagnose.own_prediction import predicted
from specbench.diagnose.own_reading import own_start
from specbench.diagnose.own_remedies import own_changed, own_remedies
from specbench.diagnose.own_start import OwnStart
from specbench.diagnose.told import Told
from specbench.diagnose.trying import Change, Goal, Situation, changed, tried
from specbench.engines import check
from specbench.engines.contract import KvPool, PoolReport, RankPools, ServerLog
from specbench.engines.sglang import logs
from specbench.judging.judge import budgets
from specbench.reading.pools import report
from specbench.terms import Limit
from specbench.units import GIB, Interval, Quantity

RECORDS = Path(__file__).parent / "records"
LIMITS: tuple[Limit, ...] = ("running_requests", "state_slots", "kv_tokens")
#: Of each era, with and without speculation, refused, capped and serving, one and two ranks, with a draft and a head.
SOME = ("0512_dflash_r8", "h200_story-6", "var_nobuffer_r4", "nospec_r4", "h200-tp2_dflash-32", "nextn_r4_full")
#: Recorded starts of which nothing is said, and why.
LEFT_OUT = {
    "0512_dflash_r16": "state slots, KV tokens, what was free after them and the context length are not all logged",
    "var_noradix_r8": "state slots, KV tokens, what was free after them and the context length are not all logged",
}


@functools.cache
def recorded(name: str) -> ServerLog:
    return logs.read([(RECORDS / name / "server.log").read_bytes()], name=name)


@functools.cache
def stripped(name: str, *, draft: bool = True) -> bytes:
    """A recorded log whose model has a name that nobody knows; `draft`: its draft keeps its own."""
    text = (RECORDS / name / "server.log").read_bytes()
    arguments = recorded(name).server_args or {}
    for key, unknown in (
        ("model_path", b"/srv/models/strange-7b"),
        ("speculative_draft_model_path", b"/srv/strange-x"),
    ):
        path = arguments.get(key)
        if isinstance(path, str) and (draft is False or key == "model_path"):
            text = re.sub(re.escape(path.encode()) + rb"(?![-\w.])", unknown, text)
    return text


@functools.cache
def read(name: str, *, draft: bool = True) -> tuple[ServerLog, PoolReport, RunConfig]:
    log = logs.read([stripped(name, draft=draft)], name=name)
    pools = report(log)
    found = config_of_log(log, pools, name)
    assert found.config is None and found.arguments is not None
    return log, pools, found.arguments


def known(name: str) -> Situation | None:
    """The same start with its model, on the measured basis; None: that model is not shipped."""
    log = recorded(name)
    pools = report(log)
    # No log can tell that its card was a share of one.
    told = Told(gpu="h200-quarter") if name.startswith("tp8-quarters_") else None
    config = config_of_log(log, pools, name, told).config
    if config is None:
        return None
    budget = budgets(config, pools)["measured"]
    graphs = sum(one.graphs.bytes for one in pools.ranks if one.graphs is not None)
    ranks = len({one.rank for one in pools.ranks}) or 1
    return Situation(
        config=config,
        budget=budget,
        free=budget.free,
        wanted_requests=1,
        passed_fraction=None,
        graphs_bytes=graphs // ranks,
    )


def prove(name: str, *, others: bool = True) -> int:
    """How many remedies were held against the known model's prediction. `others`: for half and twice as many too."""
    log, pools, arguments = read(name)
    start = own_start(log, pools, arguments)
    assert isinstance(start, OwnStart), start
    as_it_was = predicted(start, arguments)
    refused = pools.running_requests is None and start.requests == 0
    assert (as_it_was is None) == refused
    if as_it_was is not None:
        logged = (pools.running_requests, pools.state_slots, pools.kv_tokens)
        for limit, value in zip(LIMITS, logged, strict=True):
            assert value is None or as_it_was.limits[limit].contains(value), (limit, value)
    model = known(name)
    if model is None:
        return 0
    asked = arguments.memory.max_running_requests or 8
    held = 0
    for wanted in {asked, max(1, asked // 2), 2 * asked} if others else {asked}:
        for remedy in own_remedies(start, wanted):
            assert remedy.basis == "own figures" and not remedy.changes_results
            goal = Goal(requests=remedy.set.get("memory.max_running_requests", wanted))
            same = tried(model, Change(remedy.set, ""), goal)
            assert same is not None, f"{remedy.set}: the known model would not serve"
            for limit in LIMITS:
                value = same.predicted[limit]
                assert value is not None and remedy.spans[limit].contains(value), (remedy.set, limit, value)
            held += 1
    return held


@pytest.mark.parametrize("name", SOME)
def test_what_the_known_model_gives_lies_within(name: str) -> None:
    assert prove(name) >= 4


@pytest.mark.slow
def test_every_recording() -> None:
    """Every recorded start that logged its arguments: proven, or left out with its reason."""
    held, starts = 0, 0
    for folder in sorted(one for one in RECORDS.iterdir() if one.is_dir() and one.name not in SOME):
        if not recorded(folder.name).server_args:
            continue
        if folder.name in LEFT_OUT:
            assert own_start(*read(folder.name)) == LEFT_OUT[folder.name]
            continue
        held, starts = held + prove(folder.name, others=False), starts + 1
    assert starts >= 50 and held >= 150, (starts, held)


def test_the_arithmetic_of_a_remedy() -> None:
    """0.5.16, era II, 16 draft tokens, 5 slots and 163,546 tokens for one request: of memory in slots, x, the slots and
    the scratch took 5 + 1 × 16 = 21. With ratio 0.5 a third of it, over 1 + 16/3 slots each, gives 5 slots from
    x = 95 and 6 from 114; the log's free memory and sizes say 110.9 at least. 12 slots for 4 requests take 12 + 4 × 16
    = 76: 163,546 × (110.89 - 76) / (110.89 - 21) = 63,478 tokens at least, 163,546 × (114 - 76) / (114 - 21) = 66,825
    at most (110.89 is rounded)."""
    start = own_start(*read("var_nobuffer_r4"))
    assert isinstance(start, OwnStart)
    (way,) = start.ways
    assert [round(value, 2) for value in (way.used, way.least, way.most)] == [21, 110.89, 114]
    found = own_changed(start, Change({"memory.max_mamba_cache_size": 12}, ""))
    assert found is not None and found[1].serves
    limits = found[1].limits
    assert (limits["state_slots"], limits["running_requests"]) == (Interval.exact(12), Interval.exact(4))
    assert limits["kv_tokens"].low == pytest.approx(63_478, abs=10)
    assert limits["kv_tokens"].high == pytest.approx(66_825, abs=10)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"parallel.pp_size": 2}, "pipeline stages and data parallelism are not covered"),
        ({"parallel.dp_size": 2}, "pipeline stages and data parallelism are not covered"),
        ({"engine.version": "0.5.6.post2"}, "before 0.5.8 every state slot has scratch of its own: not covered"),
        ({"engine.args.enable-int8-mamba-checkpoint": True}, "pools sized with enable_int8_mamba_checkpoint are not"),
        ({"engine.env": {"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": "1"}}, "pools sized with SGLANG_ENABLE_POST_CAPTURE_"),
        ({"memory.max_total_tokens": 163_546}, "max_total_tokens bound the KV pool, so it is not known what a token"),
        ({"speculative.num_draft_tokens": 8}, "8 draft tokens are given, the scratch is of 16"),
        ({"memory.mamba_full_memory_ratio": 4.0}, "the rules of sglang 0.5.16 do not give the logged pools"),
    ],
)
def test_what_the_log_does_not_decide_is_left_out(change: dict[str, Any], why: str) -> None:
    log, pools, arguments = read("var_nobuffer_r4")
    found = own_start(log, pools, arguments.replace(change))
    assert isinstance(found, str) and found.startswith(why)


@pytest.mark.parametrize(("label", "k", "why"), [("SWA", 1, "sliding-window"), (None, None, "latent attention")])
def test_other_kinds_of_kv_are_left_out(label: str | None, k: int | None, why: str) -> None:
    log, pools, arguments = read("var_nobuffer_r4")
    size = None if k is None else Quantity(k * GIB, 5_368_710)
    pool = KvPool(rank="", role="target", label=label, tokens=100, k=size, v=size, kv=size, dtype=None, line=1)
    found = own_start(dataclasses.replace(log, kv_pools=(pool,)), pools, arguments)
    assert isinstance(found, str) and found.startswith(why)


def test_a_draft_that_never_loaded_and_is_not_known() -> None:
    """0.5.12 loads the draft after the pools: a start that is refused there does not tell what it takes."""
    found = own_start(*read("0512_dflash_r8", draft=False))
    assert found == ("the draft's weights and KV, which SGLang 0.5.12 loads after the pools, are not in the log")


@pytest.mark.parametrize("change", [{"memory.kv_cache_dtype": "fp8_e4m3"}, {"memory.kv_cache_dtype": "auto"}])
def test_a_draft_that_never_loaded_has_two_bytes_an_element_or_is_left_out(change: dict[str, Any]) -> None:
    log, pools, arguments = read("0512_dflash_r8")
    found = own_start(log, pools, arguments.replace(change))
    assert isinstance(found, str) == (change["memory.kv_cache_dtype"] != "auto")
    assert not isinstance(found, str) or found == "the draft's KV is not in the log, and neither is its dtype"


# ── computed starts of other models and versions ─────────────────────────────────────────────────────────────────────


def printed(size: int) -> Quantity:
    """As the engine prints it: rounded to 0.01 GiB."""
    return Quantity(round(round(size / GIB, 2) * GIB), 5_368_710)


def pair(size: int) -> Quantity:
    """K and V, each rounded."""
    return Quantity(2 * printed(size // 2).bytes, 2 * 5_368_710)


def computed(config: RunConfig, free: FreeMemory) -> tuple[ServerLog, PoolReport, RunConfig]:
    """What a start of the known model would log."""
    case = solved(config, free=free)
    pools, blank = case.span.point.pools, RankPools(
        rank="", role="target", weights=None, state_slots=None, state_conv=None, state_ssm=None, scratch_ssm=None,
        scratch_conv=None, kv_tokens=case.span.point.pools.tokens, k=None, v=None, kv=None, dtype=None, label=None,
        graphs=None, available=None, lines={},
    )  # fmt: skip
    allocation = case.allocation(pools)
    size = {term: share.bytes for term, share in allocation.shares.items()}
    post = free.post.point
    target = dataclasses.replace(
        blank,
        state_slots=pools.slots,
        state_conv=printed(size["state_conv"]),
        state_ssm=printed(size["state_ssm"]),
        scratch_ssm=printed(size["scratch_ssm"]) if "scratch_ssm" in size else None,
        scratch_conv=printed(size["scratch_conv"]) if "scratch_conv" in size else None,
        kv=pair(size["kv"]),
        graphs=printed(GIB),
        available=printed(post - allocation.total_bytes + size["draft_kv"]),
    )
    draft = dataclasses.replace(blank, role="draft", kv=pair(size["draft_kv"]), weights=printed(3 * GIB))
    version = config.engine.version
    log = dataclasses.replace(read("nospec_r4")[0], version=version, version_range=(version, version), kv_pools=())
    found = PoolReport(
        ranks=(target, draft) if size["draft_kv"] else (target,),
        requested={"mem_fraction_static": config.memory.mem_fraction_static},
        running_requests=pools.requests,
        state_slots=pools.slots,
        kv_tokens=pools.tokens,
        context_len=case.demand.context_len,
        max_input_tokens=None,
        pre={"": printed(free.pre.point - GIB // 20)},  # printed a little apart from what the solver reads
        post={"": printed(post + GIB // 50)},
        disagreements=(),
    )
    return log, found, config.replace({"model": "(not known)"})


CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"memory.max_mamba_cache_size": 20},
    {"memory.mamba_full_memory_ratio": 1.5},
    {"memory.mem_fraction_static": 0.9},
    {"memory.mem_fraction_static": 0.6},
    {"memory.max_running_requests": 3},
    {"memory.max_running_requests": 24},
    {"memory.disable_radix_cache": True, "memory.mamba_radix_cache_strategy": "auto"},
)


@pytest.mark.parametrize(
    ("version", "model", "algorithm"),
    [
        ("0.5.10", "Qwen/Qwen3.6-27B", "none"),
        ("0.5.13", "nvidia/NVIDIA-Nemotron-Nano-9B-v2", "none"),
        ("0.5.14", "Qwen/Qwen3.6-27B", "NEXTN"),
        ("0.5.18", "Qwen/Qwen3.6-27B", "DFLASH"),
        ("0.5.20", "nvidia/Qwen3.6-35B-A3B-NVFP4", "NGRAM"),
        ("0.5.23", "Qwen/Qwen3.6-27B", "NEXTN"),
    ],
)
def test_other_models_and_versions(version: str, model: str, algorithm: str) -> None:
    speculative = {
        "none": {"algorithm": "none"},
        "NEXTN": {"algorithm": "NEXTN", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4},
        "NGRAM": {"algorithm": "NGRAM", "num_draft_tokens": 12},
        "DFLASH": {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash", "num_draft_tokens": 16},
    }
    config = RunConfig.model_validate(
        {
            "name": "start",
            "engine": {"version": version},
            "model": model,
            "gpu": {"name": "h200"},
            "speculative": speculative[algorithm],
            "memory": {"mem_fraction_static": 0.8, "max_running_requests": 8, "context_length": 8192},
        }
    )
    pre, post = 139 * GIB, 85 * GIB
    free = FreeMemory(pre=Interval.exact(pre), post=Interval.exact(post), source="given")
    start = own_start(*computed(config, free))
    assert isinstance(start, OwnStart), start
    model_known = Situation(
        config=config,
        budget=predict(config, free=free),
        free=free,
        wanted_requests=8,
        passed_fraction=None,
        graphs_bytes=GIB,
    )
    held = 0
    for change in CHANGES:
        right, own = changed(model_known, Change(change, "")), own_changed(start, Change(change, ""))
        if right is None or right[1].verdict == "refused":
            continue
        assert own is not None and right[1].verdict in own[1].verdicts, change
        for limit in LIMITS:
            value = right[1].limits[limit].value
            assert value is not None and own[1].limits[limit].contains(value.point), (change, limit, value)
        held += 1
    assert held >= 6 and not check(config)


# ── how it is shown ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_basis_is_named_wherever_a_remedy_is_shown() -> None:
    found = of_log([stripped("0512_dflash_r8")], name="server.log")
    assert found.config is None and not found.budgets
    (finding,) = found.findings
    assert finding.id == "refused-state-pool" and {remedy.basis for remedy in finding.remedies} == {"own figures"}
    assert [dict(remedy.set) for remedy in finding.remedies][-1] == {"memory.max_running_requests": 4}
    for everything in (False, True):
        console = Console(file=io.StringIO(), width=200, record=True)
        render(found, console, everything=everything)
        text = console.export_text()
        assert "from this log's own figures, rounded to 0.01 GiB; model not known" in text
        assert "from the configuration alone" not in text and "tried by the prediction" not in text
        assert "remedies are computed from this log's own figures" in text
    shown = to_document(found)["findings"][0]["remedies"][0]
    assert shown["basis"] == "own figures" and shown["bounds"]["running_requests"] == [8, 8]
