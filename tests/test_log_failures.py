"""How a server died, from its log: kind, phase, figures. Texts are the engine's, tracebacks shortened to what tells."""

# ruff: noqa: E501  (lines of logs are quoted whole)
from __future__ import annotations

from typing import Any

import pytest

from specbench.engines.contract import ServerLog
from specbench.engines.sglang import logs
from specbench.units import MIB, Quantity

HIT = "[2026-05-20 10:11:13 TP0] Scheduler hit an exception: Traceback (most recent call last):"
SRT = "/usr/lib/python3.12/site-packages/sglang/srt/"
BUILD = [
    f'  File "{SRT}managers/scheduler.py", line 4623, in run_scheduler_process',
    "    scheduler = Scheduler(",
    "                ^^^^^^^^^^",
    f'  File "{SRT}managers/scheduler.py", line 431, in __init__',
    "    self.init_model_worker()",
]
GRAPH = [f'  File "{SRT}model_executor/cuda_graph_runner.py", line 737, in __init__', "    self.capture()"]
END = ["", "[2026-05-20 10:11:13] Received sigquit from a child process. It usually means the child failed."]


def died(exception: str, *frames: str) -> ServerLog:
    return logs.read([HIT, *BUILD, *frames, *exception.split("\n"), *END])


@pytest.mark.parametrize(
    ("text", "kind", "phase", "values"),
    [
        (
            (
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
                "self.server_args.mem_fraction_static=0.508124"
            ),
            "not_enough_memory",
            "pools",
            {"mem_fraction_static": 0.508124},
        ),
        (
            (
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
                "mem_fraction_static=0.508124"
            ),
            "not_enough_memory",
            "pools",
            {"mem_fraction_static": 0.508124},
        ),
        (
            (
                "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.508124. Raise "
                "--mem-fraction-static above 0.393 (minimum viable = 1 - available/pre = 0.3924). If using speculative "
                "decoding, draft weights are now counted."
            ),
            "weights_leave_no_room",
            "pools",
            {"mem_fraction_static": 0.508124, "raise_above": 0.393, "minimum": 0.3924},
        ),
        (
            (
                "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
                "max_mamba_cache_size=-3 (total_rest_memory=-1.25 GB, mamba_cache_per_req=146.81 MB). Try: (1) reduce "
                "--max-running-requests, (2) increase --mem-fraction-static, (3) reduce --speculative-num-draft-tokens, or "
                "(4) use GPUs with more memory."
            ),
            "state_pool_too_small",
            "pools",
            {
                "state_slots": -3,
                "rest": Quantity(-1342177280, 5_368_710),
                "slot": Quantity(round(146.81 * MIB), 5_243),
            },
        ),
        (
            (
                "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
                "max_mamba_cache_size=4, mamba_ratio=5, resulting max_num_reqs=0. Try: (1) reduce --max-running-requests, "
                "(2) increase --mem-fraction-static, or (3) use GPUs with more memory."
            ),
            "state_pool_too_small",
            "pools",
            {"state_slots": 4, "slots_per_request": 5, "running_requests": 0},
        ),
        ("AssertionError: capture_bs=[0]", "zero_requests", "graphs", {}),
        ("AssertionError: max_running_request is zero", "zero_requests", "pools", {}),
        ("AssertionError: Memory pool size is too small", "memory_pool_too_small", "pools", {}),
        (
            (
                "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
                "pre_model_load_memory=20.5, local_gpu_memory=78.25, local_gpu_memory * 0.9=70.425"
            ),
            "memory_unbalanced",
            "load",
            {"name": "pre_model_load_memory", "most_gib": 20.5, "local_gib": 78.25},
        ),
        (
            (
                "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
                "min_per_gpu_memory=20.5, local_gpu_memory=78.25, local_gpu_memory * 0.9=70.425"
            ),
            "memory_unbalanced",
            "load",
            {"name": "min_per_gpu_memory"},
        ),
        (  # provoked with two H200s: Python prints a float whole
            (
                "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
                "pre_model_load_memory=77.701416015625, local_gpu_memory=138.212646484375, "
                "local_gpu_memory * 0.9=124.39138183593751"
            ),
            "memory_unbalanced",
            "load",
            {"name": "pre_model_load_memory", "most_gib": 77.701416015625, "local_gib": 138.212646484375},
        ),
        (
            (
                "RuntimeError: int8 mamba checkpoint pool needs ~9.38GB but only 4.20GB HBM is free. Lower "
                "--int8-mamba-ckpt-size (currently 512) or --mem-fraction-static."
            ),
            "int8_pool_too_large",
            "pools",
            {"needed": Quantity(10071698309, 5_368_710)},
        ),
        (
            (
                "ValueError: Speculative decoding for Qwen3_5ForConditionalGeneration is not compatible with radix cache when "
                "using --mamba-scheduler-strategy no_buffer.To use radix cache with speculative decoding, please use "
                "--mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1."
            ),
            "bad_arguments",
            "arguments",
            {"architecture": "Qwen3_5ForConditionalGeneration"},
        ),
        (
            (
                "ValueError: mamba extra_buffer is not compatible with --disable-radix-cache. Overlap scheduling is already "
                "supported with no_buffer + disable_radix_cache. Please use --mamba-scheduler-strategy no_buffer instead."
            ),
            "bad_arguments",
            "arguments",
            {},
        ),
        (
            "AssertionError: mamba_track_interval 8 must be greater than or equal to speculative_num_draft_tokens 16",
            "bad_arguments",
            "arguments",
            {"interval": 8},
        ),
        (
            "AssertionError: extra_buffer is not supported for FooForCausalLM; use no_buffer.",
            "bad_arguments",
            "arguments",
            {},
        ),
        (
            (
                "ValueError: --enable-linear-replayssm-spec with DSPARK/DFLASH requires a KDA (kimi_linear) model; got a "
                "non-KDA model."
            ),
            "bad_arguments",
            "arguments",
            {},
        ),
        (
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0 has a total capacity of 23.56 "
                "GiB of which 338.75 MiB is free. Including non-PyTorch memory, this process has 23.06 GiB memory in use."
            ),
            "cuda_oom",
            "unknown",
            {
                "requested_bytes": 402653184,
                "free_bytes": 355205120,
                "total_bytes": 25297357373,
                "in_use_bytes": 24760486461,
            },
        ),
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.41 GiB.",
            "cuda_oom",
            "unknown",
            {"requested_bytes": 1513975972},
        ),
        (
            "OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000)",
            "port_in_use",
            "load",
            {},
        ),
        (
            (
                "ValueError: --enable-unified-memory + EAGLE/EAGLE3/DFLASH on a mamba-hybrid target needs the draft's KV fused "
                "into the target's pages, which this build does not do."
            ),
            "bad_arguments",
            "arguments",
            {},
        ),
        ("KeyError: 'linear_attn_config'", "runtime_error", "unknown", {}),
    ],
)
def test_refused_start(text: str, kind: str, phase: str, values: dict[str, Any]) -> None:
    log = died(text)
    (failure,) = log.failures
    assert (failure.kind, failure.phase, failure.rank, failure.line) == (kind, phase, "TP0", 7)
    assert {name: failure.values[name] for name in values} == values
    exception, _, said = text.partition(": ")
    assert (failure.exception, failure.text) == (exception.rpartition(".")[2], said)
    assert failure.values["where"] == "sglang/srt/managers/scheduler.py:431 in __init__"


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        (
            (
                "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 2048 tokens.\n"
                "available_size=12, evictable_size=0"
            ),
            "kv_pool_exhausted",
            {"tokens_wanted": 2048},
        ),
        (
            "RuntimeError: Decode out of memory. Try to lower your batch size.\nTry to allocate 8 tokens.\nnone left",
            "kv_pool_exhausted",
            {"tokens_wanted": 8},
        ),
        (
            (
                "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`. "
                "req_to_token_pool.available_size()=0, num_reqs=3, "
            ),
            "request_slots_exhausted",
            {"slots_left": 0, "requests": 3},
        ),
        (
            "AssertionError: Not enough space for mamba cache, try to increase --max-mamba-cache-size.",
            "state_slots_exhausted",
            {},
        ),
        (
            (
                "AssertionError: Not enough space for mamba cache, try to increase --mamba-full-memory-ratio or "
                "--max-mamba-cache-size. mid=None, self.mamba_pool.size=8"
            ),
            "state_slots_exhausted",
            {},
        ),
        (
            "AssertionError: Not enough space for mamba ping pong idx, try to increase --mamba-full-memory-ratio.",
            "state_slots_exhausted",
            {},
        ),
        ("AssertionError: Can not alloc int8 mamba checkpoint slot", "state_slots_exhausted", {}),
        (
            "ValueError: token_to_kv_pool_allocator memory leak detected! self.max_total_num_tokens=87061",
            "memory_leak",
            {"pool": "token_to_kv_pool_allocator"},
        ),
        ("ValueError: pool memory leak detected! [full] total=87061, available=87000", "memory_leak", {"pool": "pool"}),
        (
            (
                "RuntimeError: The expanded size of the tensor (524288) must match the existing size (524352) at "
                "non-singleton dimension 0.  Target sizes: [524288].  Tensor sizes: [524352]"
            ),
            "runtime_error",
            {},
        ),
    ],
)
def test_died_while_serving(text: str, kind: str, values: dict[str, Any]) -> None:
    loop = f'  File "{SRT}managers/scheduler.py", line 1601, in event_loop_overlap'
    log = died(text, loop, "    batch_result = self.run_batch(batch)", *GRAPH)
    (failure,) = log.failures
    assert (failure.kind, failure.phase) == (kind, "serving")
    assert {name: failure.values[name] for name in values} == values
    assert failure.text == text.partition(": ")[2].strip()  # all lines of the message


@pytest.mark.parametrize(
    ("lines", "phase"),
    [
        (["Load weight begin. avail mem=94.23 GB"], "load"),
        (["Load weight end. elapsed=1.00 s, type=Foo, avail mem=43.02 GB, mem usage=51.21 GB."], "pools"),
        (["KV Cache is allocated. #tokens: 87061, K size: 2.66 GB, V size: 2.66 GB"], "pools"),
        (["Memory pool end. avail mem=62.47 GB"], "graphs"),
        (["The server is fired up and ready to roll!"], "serving"),
        (
            [
                (
                    "Decode batch, #running-req: 3, #token: 186, token usage: 0.12, cuda graph: False, "
                    "gen throughput (token/s): 178.86, #queue-req: 2"
                )
            ],
            "serving",
        ),
    ],
)
def test_where_the_frames_say_nothing_the_log_tells_the_phase(lines: list[str], phase: str) -> None:
    text = [f"[2026-05-20 10:11:12 TP0] {line}" for line in lines]
    log = logs.read(
        [*text, HIT, *BUILD, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.41 GiB.", *END]
    )
    assert [(failure.kind, failure.phase) for failure in log.failures] == [("cuda_oom", phase)]


@pytest.mark.parametrize(
    ("frame", "phase"),
    [
        (f'  File "{SRT}server_args.py", line 4750, in _handle_model_specific_adjustments', "arguments"),
        (f'  File "{SRT}model_loader/loader.py", line 660, in load_model', "load"),
        (f'  File "{SRT}mem_cache/memory_pool.py", line 2031, in _create_buffers_normal', "pools"),
        (f'  File "{SRT}model_executor/cuda_graph_runner.py", line 737, in capture', "graphs"),
        (f'  File "{SRT}managers/scheduler.py", line 1601, in event_loop_normal', "serving"),
    ],
)
def test_frames_tell_the_phase(frame: str, phase: str) -> None:
    (failure,) = died("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.41 GiB.", frame).failures
    assert failure.phase == phase


def test_the_cause_of_a_chain_not_its_consequence() -> None:
    log = logs.read(
        [
            HIT,
            *BUILD,
            *GRAPH,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.56 GiB.",
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            "Traceback (most recent call last):",
            f'  File "{SRT}managers/scheduler.py", line 4623, in run_scheduler_process',
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 512.00 MiB.",
            "Possible solutions:",
            "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
            "",
            "[2026-05-20 10:11:13] Received sigquit from a child process. It usually means the child failed.",
        ]
    )
    (failure,) = log.failures
    assert (failure.kind, failure.phase, failure.exception) == ("cuda_oom", "graphs", "OutOfMemoryError")
    assert failure.values["requested_bytes"] == 512 * 2**20


@pytest.mark.parametrize(
    ("why", "kind"),
    [("CUDA out of memory. Tried to allocate 512.00 MiB.", "cuda_oom"), ("no kernel image", "graph_capture_failed")],
)
def test_a_capture_that_failed(why: str, kind: str) -> None:
    (failure,) = died(f"Exception: Capture cuda graph failed: {why}\nPossible solutions:\n1. set …\n2. set …").failures
    assert (failure.kind, failure.phase) == (kind, "graphs")
    assert failure.text.endswith("2. set …")


def test_every_rank_that_died_is_named() -> None:
    text = []
    for rank in ("TP0", "TP1"):
        text += [HIT.replace("TP0", rank), *BUILD, "AssertionError: max_running_request is zero", ""]
    log = logs.read(text)
    assert [(failure.rank, failure.kind) for failure in log.failures] == [
        ("TP0", "zero_requests"),
        ("TP1", "zero_requests"),
    ]


def test_consequences_are_no_failures() -> None:
    log = logs.read(
        [
            "[2026-05-20 10:11:13] Received sigquit from a child process. It usually means the child failed.",
            "[2026-05-20 10:11:13] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
            "[2026-05-20 10:11:13] kill_process_tree called: parent_pid=557, include_parent=True, pid=557",
            "[2026-05-20 10:11:13] Subprocess scheduler_0 (pid=1120) crashed with exit code -15. Triggering SIGQUIT for cleanup...",
        ]
    )
    assert log.failures == ()


def test_a_child_that_was_killed_without_a_word_is_the_last_resort() -> None:
    killed = "[2026-05-20 10:11:13] Subprocess scheduler_0 (pid=1120) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
    (failure,) = logs.read([killed]).failures
    assert (failure.kind, failure.values["exit_code"]) == ("process_died", -9)
    log = logs.read([HIT, *BUILD, "AssertionError: capture_bs=[0]", "", killed])
    assert [failure.kind for failure in log.failures] == ["zero_requests"]


@pytest.mark.parametrize(
    "line",
    [
        "launch_server.py: error: unrecognized arguments: --mamba-ful-memory-ratio 0.5",
        "sglang serve: error: argument --speculative-algorithm: invalid choice: 'DFLASHY'",
    ],
)
def test_arguments_that_the_parser_refuses(line: str) -> None:
    (failure,) = logs.read(
        ["usage: launch_server.py [-h] --model-path MODEL_PATH", line.replace("sglang serve", "sglang")]
    ).failures
    assert (failure.kind, failure.phase, failure.exception) == ("bad_arguments", "arguments", None)
    assert failure.text == line.partition(": error: ")[2]


def test_a_traceback_that_was_caught_is_a_notice() -> None:
    log = logs.read(
        [
            "[2026-05-20 10:11:13] The server is fired up and ready to roll!",
            "[2026-05-20 10:11:13] post-warmup freeze_gc failed",
            "Traceback (most recent call last):",
            f'  File "{SRT}entrypoints/http_server.py", line 900, in _freeze',
            "ConnectionRefusedError: [Errno 111] Connection refused",
            "",
            '[2026-05-20 10:11:14] INFO:     127.0.0.1:40992 - "GET /model_info HTTP/1.1" 200 OK',
        ]
    )
    assert log.failures == ()
    assert [(notice.kind, notice.line) for notice in log.notices] == [("logged_error", 5)]
    assert "Connection refused" in log.evidence[5]


@pytest.mark.parametrize("survives", [True, False])
def test_a_shortage_that_was_caught_is_a_failure_only_if_it_was_the_end(survives: bool) -> None:
    text = [
        "[2026-05-20 10:11:12] The server is fired up and ready to roll!",
        "[2026-05-20 10:11:13 TP0] autotuning failed, using the default",
        "Traceback (most recent call last):",
        f'  File "{SRT}layers/moe/fused_moe.py", line 90, in tune',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.41 GiB.",
        "",
    ]
    if survives:
        text.append(
            "[2026-05-20 10:11:14 TP0] Decode batch, #running-req: 3, #token: 186, token usage: 0.12, cuda graph: False, "
            "gen throughput (token/s): 178.86, #queue-req: 2"
        )
    log = logs.read(text)
    assert [failure.kind for failure in log.failures] == ([] if survives else ["cuda_oom"])
    assert [notice.kind for notice in log.notices] == (["logged_error"] if survives else [])


def test_stopping_by_hand_is_no_failure() -> None:
    log = logs.read(
        [
            "Traceback (most recent call last):",
            '  File "<frozen runpy>", line 198, in _run_module_as_main',
            "KeyboardInterrupt",
        ]
    )
    assert log.failures == ()


def test_watchdogs() -> None:
    hard = "[2026-05-20 10:11:13 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300.0, self.soft=False)"
    log = logs.read(["[2026-05-20 10:11:12] The server is fired up and ready to roll!", hard])
    assert [(f.kind, f.phase, f.values["timeout_s"]) for f in log.failures] == [("watchdog_timeout", "serving", 300.0)]
    old = logs.read(["[2026-05-20 10:11:13 TP0] Watchdog timeout (self.watchdog_timeout=300)"])
    assert [f.values["timeout_s"] for f in old.failures] == [300.0]
    soft = logs.read([hard.replace("self.soft=False", "self.soft=True")])
    assert (soft.failures, [notice.kind for notice in soft.notices]) == ((), ["soft_watchdog_timeout"])


@pytest.mark.parametrize(
    ("line", "module"),
    [
        (
            "/opt/venv/bin/python: Error while finding module specification for 'sglang.launch_server' (ModuleNotFoundError: No module named 'sglang')",
            "sglang",
        ),
        ("/usr/bin/python3: No module named sglang.launch_server", "sglang.launch_server"),
        ("/usr/bin/python3: No module named sglang", "sglang"),
    ],
)
def test_an_interpreter_without_the_engine(line: str, module: str) -> None:
    log = logs.read([line])
    (failure,) = log.failures
    assert (failure.kind, failure.phase, failure.line) == ("bad_environment", "unknown", 1)
    assert failure.text == line.partition(": ")[2]
    assert failure.values == {"module": module}
    assert logs.recognised(log)


def test_a_module_that_the_engine_imports_is_missing() -> None:
    log = logs.read(
        [
            "Traceback (most recent call last):",
            '  File "<frozen runpy>", line 198, in _run_module_as_main',
            f'  File "{SRT}server_args.py", line 27, in <module>',
            "    import orjson",
            "ModuleNotFoundError: No module named 'orjson'",
        ]
    )
    (failure,) = log.failures
    assert (failure.kind, failure.phase, failure.exception) == ("bad_environment", "unknown", "ModuleNotFoundError")
    assert (failure.text, failure.values["module"], failure.line) == ("No module named 'orjson'", "orjson", 5)
    assert logs.recognised(log)
    mixed = died("ImportError: cannot import name 'AutoConfig' from 'transformers' (/usr/lib/x.py)", *GRAPH)
    assert (mixed.failures[0].kind, mixed.failures[0].phase) == ("bad_environment", "graphs")


def test_a_missing_module_of_others_says_nothing_about_the_engine() -> None:
    """A build step that looks for pip, an import that somebody caught: neither ended the server."""
    caught = ["Traceback (most recent call last):", f'  File "{SRT}utils.py", line 3, in load', "ImportError: no gguf"]
    log = logs.read(["/usr/bin/python3: No module named pip", *caught])
    assert log.failures == ()
    assert not logs.recognised(logs.read(["/usr/bin/python3: No module named pip"]))
    other = logs.read(
        ["Traceback (most recent call last):", '  File "/x/train.py", line 1, in <module>', "ImportError: no torch"]
    )
    assert not logs.recognised(other)


@pytest.mark.parametrize("wrap", ["", "3|qwen  | "])
def test_the_overlap_workers_thread_of_releases_before_0_5_6(wrap: str) -> None:
    """sgl-project/sglang 4547 and 5284 (pm2's lines): a worker that dies in a thread ends the server by a signal."""
    lines = [
        "[2025-04-11 15:03:10] The server is fired up and ready to roll!",
        "[2025-04-11 15:03:19 TP0] TpModelWorkerClient hit an exception: Traceback (most recent call last):",
        f'  File "{SRT}managers/tp_worker_overlap_thread.py", line 111, in forward_thread_func',
        "    with torch.get_device_module(self.device).stream(self.forward_stream):",
        '  File "/usr/lib/python3.12/site-packages/torch/cuda/__init__.py", line 595, in __exit__',
        "    torch.cuda.set_stream(self.src_prev_stream)  # type: ignore[arg-type]",
        "RuntimeError: Event device index does not match recording stream's device index",
        "",
        "[2025-04-11 15:03:19] Received sigquit from a child process. It usually means the child failed.",
    ]
    (failure,) = logs.read([wrap + line for line in lines]).failures
    assert (failure.kind, failure.phase, failure.rank, failure.line) == ("runtime_error", "serving", "TP0", 7)
    assert failure.values["where"] == "sglang/srt/managers/tp_worker_overlap_thread.py:111 in forward_thread_func"


def test_the_grpc_server_of_0_5_6_and_0_5_8() -> None:
    """grpc_request_manager.py: print_exception_wrapper logs, and kills the tree of processes."""
    log = logs.read(
        [
            "[2026-01-11 15:03:19] GrpcRequestManager hit an exception: Traceback (most recent call last):",
            f'  File "{SRT}grpc/grpc_request_manager.py", line 918, in print_exception_wrapper',
            "    await func()",
            "KeyError: 'x'",
            "",
        ]
    )
    assert [(failure.kind, failure.exception, failure.text) for failure in log.failures] == [
        ("runtime_error", "KeyError", "'x'")
    ]
