"""The log reader against what real servers printed: the recordings, and logs that people published.

Expected values of the recordings lie in logs/expected (cut out of the logs by hand, failures named after reading them),
those of the published logs in logs/sglang/cases beside the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from specbench.engines.contract import ServerLog
from specbench.engines.sglang import logs
from specbench.units import Quantity
from specbench.versions import version_key

HERE = Path(__file__).parent
RECORDINGS = sorted((HERE / "logs" / "expected").glob("*.json"))
CASES = sorted((HERE / "logs" / "sglang" / "cases").glob("*.json"))


def gib(text: str | None) -> Quantity | None:
    """'3.52' as SGLang prints it: GiB, two decimals. The bytes are worked out here, not by the package."""
    if text is None:
        return None
    size = round(float(text) * 1024**3)
    return Quantity(size, 5_368_710)  # half of 0.01 GiB, rounded up


# ── the recordings ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_recording(path: Path) -> None:
    want = json.loads(path.read_text())
    log = logs.read(HERE / "records" / path.stem / "server.log")
    assert log.lines_total == want["lines"]
    assert log.ready_line == want["ready"]
    assert log.memory_before == {rank: gib(text) for rank, text in want["pre_gib"].items()}
    assert [[w.line, w.rank, w.role, w.model_class, w.available, w.used] for w in log.weights] == [
        [*row[:4], gib(row[4]), gib(row[5])] for row in want["weights"]
    ]
    assert [[p.line, p.rank, p.slots, p.conv, p.ssm, p.scratch_ssm, p.scratch_conv] for p in log.state_pools] == [
        [*row[:3], *map(gib, row[3:])] for row in want["state_pools"]
    ]
    assert {pool.role for pool in log.state_pools} <= {"target"}
    assert [[p.line, p.rank, p.role, p.tokens, p.k, p.v] for p in log.kv_pools] == [
        [*row[:4], gib(row[4]), gib(row[5])] for row in want["kv_pools"]
    ]
    assert {pool.dtype for pool in log.kv_pools} <= {"torch.bfloat16"}
    assert [[e.line, e.rank, e.role, e.available] for e in log.pool_ends] == [
        [*row[:3], gib(row[3])] for row in want["pool_ends"]
    ]
    assert [[g.line, g.rank, g.role, g.kind, g.used] for g in log.graphs if g.used is not None] == [
        [*row[:4], gib(row[4])] for row in want["graphs"]
    ]
    assert [
        [r.line, r.rank, r.kv_tokens, r.running_requests, r.context_len, r.chunked_prefill_size, r.max_prefill_tokens]
        for r in log.resolved
    ] == [row[:7] for row in want["resolved"]]
    assert [r.available for r in log.resolved] == [gib(row[7]) for row in want["resolved"]]
    assert len(log.unread) == want["unread"]
    assert logs.recognised(log)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_recording_end_and_batches(path: Path) -> None:
    want = json.loads(path.read_text())
    log = logs.read(HERE / "records" / path.stem / "server.log")
    if want["failure"] is None:
        assert log.failures == ()
    else:
        first = log.failures[0]
        assert {"kind": first.kind, "phase": first.phase, "exception": first.exception, "line": first.line} == want[
            "failure"
        ]
    assert (log.seen["decode"], log.seen["prefill"]) == (want["decode_lines"], want["prefill_lines"])
    assert len(log.decode["line"]) == want["decode_lines"]
    assert len(log.prefill["line"]) == want["prefill_lines"]
    if want["last_decode"]:
        assert {name: log.decode[name][-1] for name in want["last_decode"]} == want["last_decode"]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_recording_version_is_inside_the_range(path: Path) -> None:
    """No line of these logs names the version; the wording must not exclude the true one."""
    true = json.loads(path.read_text())["engine_version"]
    lines = (HERE / "records" / path.stem / "server.log").read_bytes().splitlines(keepends=True)
    log = logs.read(line for line in lines if b" server_args=" not in line)  # whose names tell the release
    since, until = log.version_range
    assert log.version is None
    assert since is None or version_key(since) <= version_key(true)
    assert until is None or version_key(until) >= version_key(true)


def test_every_recording_has_expected_values() -> None:
    recorded = {path.parent.name for path in (HERE / "records").glob("*/server.log")}
    assert recorded == {path.stem for path in RECORDINGS}
    assert len(recorded) == 75


def test_evidence_is_the_line_itself() -> None:
    path = HERE / "records" / "dflash_r8" / "server.log"
    lines = path.read_bytes().decode().split("\n")
    log = logs.read(path)
    for number in (log.state_pools[0].line, log.kv_pools[1].line, log.resolved[0].line, log.decode["line"][3]):
        assert log.evidence[number].rstrip() in lines[number - 1]
    assert "Mamba Cache is allocated. max_mamba_cache_size: 8" in log.evidence[35]


def test_arguments_of_a_recording() -> None:
    log = logs.read(HERE / "records" / "dflash_r8" / "server.log")
    assert log.server_args is not None
    assert log.server_args["mem_fraction_static"] == 0.508124
    assert log.server_args["max_running_requests"] == 8
    assert log.server_args["speculative_algorithm"] == "DFLASH"
    assert log.server_args["trust_remote_code"] is False
    assert log.server_args["max_total_tokens"] is None
    # An object inside the arguments is no literal: it stays text, and the fields after it are read.
    assert log.server_args["cuda_graph_config"].startswith("CudaGraphConfig(decode=PhaseConfig(backend='full'")
    assert log.server_args["speculative_num_draft_tokens"] == 16
    assert log.server_args_line == 5


def test_log_of_0_5_23() -> None:
    """Real 0.5.23 with the 27B model's pools: arguments as a dict, the cap said in words, a caught traceback."""
    log = logs.read(HERE / "logs" / "sglang" / "0.5.23-mtp-capped.log")
    assert log.version_range == ("0.5.23", "0.5.23")
    assert (log.server_args or {})["speculative_algorithm"] == "EAGLE"
    assert (log.server_args or {})["mamba_full_memory_ratio"] == 0.5
    assert [(w.role, w.model_class, w.available) for w in log.weights] == [
        ("target", "Qwen3_5ForCausalLM", gib("95.60")),
        ("draft", "Qwen3_5ForCausalLMMTP", gib("33.93")),
    ]
    assert [(p.slots, p.ssm, p.scratch_ssm, p.scratch_conv) for p in log.state_pools] == [
        (4, gib("0.70"), gib("4.50"), gib("0.09"))
    ]
    assert [(p.role, p.tokens, p.k) for p in log.kv_pools] == [
        ("target", 234067, gib("7.14")),
        ("draft", 234067, gib("0.45")),
    ]
    assert [(r.kv_tokens, r.running_requests, r.available) for r in log.resolved] == [(234067, 1, gib("33.93"))]
    capped = next(notice for notice in log.notices if notice.kind == "requests_capped_by_state")
    assert capped.values == {"resolved": 1, "state_slots": 4, "slots_per_request": 3}
    assert [(notice.line, notice.text[:42]) for notice in log.notices if notice.kind == "logged_error"] == [
        (134, "requests.exceptions.ConnectionError: HTTPC")
    ]
    assert (log.failures, log.ready_line, log.unread) == ((), 135, ())


def test_batches_of_0_5_23() -> None:
    log = logs.read(HERE / "logs" / "sglang" / "0.5.23-dflash-cpu.log")
    assert (log.seen["decode"], log.decode["line"][0], log.decode["line"][-1]) == (25, 76, 130)
    assert (log.decode["state_slots_used"][-1], log.decode["state_usage"][-1]) == (8, 0.50)
    assert (log.decode["throughput"][-1], log.decode["graph"][-1]) == (155.57, False)
    assert log.failures == ()


# ── published logs ───────────────────────────────────────────────────────────────────────────────────────────────────


def first(values: Sequence[Any], role: str | None = None) -> Any:
    return next(value for value in values if role is None or value.role == role)


def size(field: str, rows: str, role: str = "target") -> Callable[[ServerLog], Any]:
    return lambda log: getattr(first(getattr(log, rows), role), field)


def graph(kind: str, role: str = "target") -> Callable[[ServerLog], Any]:
    return lambda log: next(g.used for g in log.graphs if (g.kind, g.role) == (kind, role))


def notice(kind: str, value: str, at: int = 0) -> Callable[[ServerLog], Any]:
    return lambda log: [n for n in log.notices if n.kind == kind][at].values[value]


def of_state_line(log: ServerLog, field: str, value: str) -> Any:
    return getattr(log.state_pools[0], field) if log.state_pools else notice("requests_capped_by_state", value)(log)


def accepted(log: ServerLog) -> Any:
    if log.decode["line"]:
        return median(log.decode["accept_length"])
    return notice("benchmark_result", "accept_length")(log)


def rank_one_after_pools(log: ServerLog) -> Any:
    return [end.available for end in log.pool_ends if end.rank == "TP1"][-1]


def after_pools(log: ServerLog) -> Any:
    """Free memory after the last pool of the first rank that says so."""
    return [end.available for end in log.pool_ends if end.rank == log.pool_ends[0].rank][-1]


def running(log: ServerLog) -> Any:
    if log.resolved:
        return log.resolved[0].running_requests
    return notice("requests_capped_by_state", "resolved")(log)


#: Name of a figure in the cases' JSON -> where our reading has it. `_gb` figures are GiB, as the engine prints them.
FIGURES: dict[str, Callable[[ServerLog], Any]] = {
    "mamba_slots": lambda log: of_state_line(log, "slots", "state_slots"),
    "conv_gb": size("conv", "state_pools"),
    "ssm_gb": size("ssm", "state_pools"),
    "inter_ssm_gb": size("scratch_ssm", "state_pools"),
    "inter_conv_gb": size("scratch_conv", "state_pools"),
    "kv_tokens": lambda log: log.kv_pools[0].tokens if log.kv_pools else log.resolved[0].kv_tokens,
    "kv_gb": size("kv", "kv_pools"),
    "k_gb": size("k", "kv_pools"),
    "v_gb": size("v", "kv_pools"),
    "draft_k_gb": size("k", "kv_pools", "draft"),
    "draft_v_gb": size("v", "kv_pools", "draft"),
    "weight_gb": size("used", "weights"),
    "avail_before_load": lambda log: next(iter(log.memory_before.values())),
    "avail_after_load": size("available", "weights"),
    "avail_after_pools": after_pools,
    "avail_after_pools_rank1": rank_one_after_pools,
    "available_gpu_mem": lambda log: log.resolved[0].available,
    "cuda_graph_gb": graph("decode"),
    "max_running_effective": running,
    "slots_per_request": notice("requests_capped_by_state", "slots_per_request"),
    "oom_mib": lambda log: log.failures[0].values["requested_bytes"] / 2**20,
    "oom_free_mib": lambda log: round(log.failures[0].values["free_bytes"] / 2**20, 2),
    "host_kv_gb": notice("host_kv_pool", "size"),
    "host_mamba_gb": notice("host_state_pool", "size"),
    "bytes_per_layer_slot": notice("elastic_state_cell", "raw_bytes"),
    "mamba_num": lambda log: log.decode["state_slots_used"][-1],
    "running": lambda log: log.decode["running_requests"][-1],
    "slots_held": lambda log: log.decode["state_slots_used"][-1] / log.decode["running_requests"][-1],
    "accept_length": accepted,
    "accept_length_chain": notice("benchmark_result", "accept_length", 0),
    "accept_length_tree": notice("benchmark_result", "accept_length", 1),
    "output_tput": notice("benchmark_result", "output_throughput"),
    "max_concurrency": notice("benchmark_result", "max_concurrency"),
    "mean_ttft_ms": notice("benchmark_result", "mean_ttft_ms"),
    "median_ttft_ms": notice("benchmark_result", "median_ttft_ms"),
    "median_tpot_ms": notice("benchmark_result", "median_tpot_ms"),
}

RAW = [path for path in CASES if json.loads(path.read_text())["log_kind"].startswith("raw")]


@pytest.mark.parametrize("path", RAW, ids=lambda path: path.stem)
def test_published_log(path: Path) -> None:
    """Every figure that the collector of the case found in the text."""
    case = json.loads(path.read_text())
    log = logs.read(path.with_suffix(".log"))
    read = {name: FIGURES[name](log) for name in case["in_log"]}
    want = {
        name: gib(f"{value:.2f}") if isinstance(read[name], Quantity) else value
        for name, value in case["in_log"].items()
    }
    assert read == want
    assert logs.recognised(log) is not path.stem.startswith("bench-")  # those are the words of a client


def test_published_logs_are_all_here() -> None:
    assert (len(RAW), len(CASES)) == (24, 40)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_published_log_is_read_without_complaint(path: Path) -> None:
    log = logs.read(path.with_suffix(".log"))
    assert log.lines_total == path.with_suffix(".log").read_bytes().rstrip(b"\n").count(b"\n") + 1
    assert all(entry.text for entry in log.unread)


@pytest.mark.parametrize(
    ("case", "kind", "phase"),
    [
        ("dflash-b16-oom-48gb-intermediate", "cuda_oom", "graphs"),
        ("glm-air-2x3090-tail", "cuda_oom", "graphs"),
        ("glm53-flash-pingpong-crash", "state_slots_exhausted", "serving"),
        ("minicpm-sala-oom-graph", "cut_off", "graphs"),  # before the exception
        ("l40s-spec-between-two-errors", "not_enough_memory", "pools"),
        ("qwen38-27b-spark-045-refused", "weights_leave_no_room", "pools"),
    ],
)
def test_published_failure(case: str, kind: str, phase: str) -> None:
    log = logs.read(HERE / "logs" / "sglang" / "cases" / f"{case}.log")
    assert [(failure.kind, failure.phase) for failure in log.failures] == [(kind, phase)]


def test_abridged_log_gives_what_is_whole_and_says_so() -> None:
    """'… max_mamba_cache_size: 10, ... ssm_state size: 0.77GB': two figures are there, the line is no engine's line."""
    log = logs.read(HERE / "logs" / "sglang" / "cases" / "qwen38-27b-mtp-5090-rejected.log")
    pool = log.state_pools[0]
    assert (pool.slots, pool.conv, pool.ssm) == (10, None, gib("0.77"))
    assert [(load.role, load.used) for load in log.weights] == [("target", gib("20.14")), ("draft", gib("5.53"))]
    assert "Mamba Cache is allocated. max_mamba_cache_size: 10, ... ssm_state size: 0.77GB" in [
        line.text for line in log.unread
    ]


@pytest.mark.parametrize(
    ("case", "slots", "sizes"),
    [
        ("qwen3-coder-next-fp8-h200", 336, ("0.56", "23.70", None)),  # a list: three lines of one pool
        ("qwen38-cookbook-191slots", 191, (None, "27.00", None)),
        ("kimi-linear-48b-32gb-state", None, (None, "32.81", None)),
        ("qwen38-flashnext-pennyroyal-none", None, (None, None, "0.00")),
        ("qwen35-35b-dflash-gb10-43gb", None, (None, "8.44", "33.75")),
    ],
)
def test_a_pasted_part_of_a_state_pool_line(
    case: str, slots: int | None, sizes: tuple[str | None, str | None, str | None]
) -> None:
    log = logs.read(HERE / "logs" / "sglang" / "cases" / f"{case}.log")
    (pool,) = log.state_pools
    assert pool.slots == slots
    assert (pool.conv, pool.ssm, pool.scratch_ssm) == tuple(None if text is None else gib(text) for text in sizes)
    assert logs.recognised(log) and pool.line in [line.line for line in log.unread]


@pytest.mark.parametrize("text", ["max_mamba_cache_size: 47", "ssm_state size: 3.1", "conv_state size: …"])
def test_a_setting_or_a_cut_figure_is_no_state_pool(text: str) -> None:
    log = logs.read([(text + "\n").encode()])
    assert (log.state_pools, log.unread, logs.recognised(log)) == ((), (), False)


def test_a_wrapped_state_pool_line_is_one_pool() -> None:
    """Its second and third line begin with figures of it."""
    (pool,) = logs.read(HERE / "logs" / "sglang" / "cases" / "qwen38-flashnext-nextn-lora-hicache.log").state_pools
    assert (pool.slots, pool.ssm, pool.scratch_ssm) == (48, gib("2.58"), gib("1.05"))
