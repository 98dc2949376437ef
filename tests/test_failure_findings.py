"""Every failure text of the engine gives its finding: id, phase, the figures that are said, the flags that are offered.

Texts are the raise statements and log calls of SGLang 0.5.6.post2 to 0.5.23, each wording once, in the frame in which a
log has it. What looks like one and is none, and what follows from another failure, gives nothing.
"""

# ruff: noqa: E501  (lines of logs are quoted whole)
from __future__ import annotations

import io
from typing import Any

import pytest

from specbench.diagnose.diagnosis import of_log
from specbench.diagnose.finding import Finding
from specbench.diagnose.told import Told
from specbench.diagnose.types import Diagnosis

SRT = "/usr/lib/python3.12/site-packages/sglang/srt/"
BEGINS = "[2026-05-20 10:11:12 TP0] Load weight begin. avail mem=94.23 GB"
LOADED = "[2026-05-20 10:11:12 TP0] Load weight end. elapsed=1.00 s, type=Foo, avail mem=43.02 GB, mem usage=51.21 GB."
READY = "[2026-05-20 10:11:12] The server is fired up and ready to roll!"
DECODE = (
    "[2026-05-20 10:11:12 TP0] Decode batch, #running-req: 3, #token: 186, token usage: 0.97, cuda graph: False, "
    "gen throughput (token/s): 178.86, #queue-req: 2"
)
HIT = "[2026-05-20 10:11:13 TP0] Scheduler hit an exception: Traceback (most recent call last):"
BUILD = f'  File "{SRT}managers/scheduler.py", line 431, in __init__'
LOOP = f'  File "{SRT}managers/scheduler.py", line 1601, in event_loop_overlap'
ARGUMENTS = f'  File "{SRT}server_args.py", line 4868, in _handle_mamba_radix_cache'
CAPTURE = f'  File "{SRT}model_executor/runner/decode_cuda_graph_runner.py", line 410, in capture'
MAIN = ["Traceback (most recent call last):", '  File "<frozen runpy>", line 198, in _run_module_as_main']
QUIT = [
    "",
    "[2026-05-20 10:11:13] Received sigquit from a child process. It usually means the child failed.",
    "[2026-05-20 10:11:13] kill_process_tree called: parent_pid=557, include_parent=True, pid=557",
]


def paste(*lines: str, version: str | None = None, **arguments: Any) -> Diagnosis:
    return of_log(io.BytesIO("\n".join(lines).encode()), name="paste", told=Told(version=version, arguments=arguments))


def starting(exception: str, frame: str = BUILD, **arguments: Any) -> Diagnosis:
    return paste(BEGINS, LOADED, HIT, frame, *exception.split("\n"), *QUIT, **arguments)


def serving(exception: str, **arguments: Any) -> Diagnosis:
    return paste(READY, DECODE, HIT, LOOP, *exception.split("\n"), *QUIT, **arguments)


def only(diagnosis: Diagnosis) -> Finding:
    """The fatal finding: there is one, however many consequences follow."""
    (found,) = [finding for finding in diagnosis.findings if finding.severity == "fatal"]
    return found


def flags(finding: Finding) -> list[str]:
    return [remedy.flags for remedy in finding.remedies]


HYBRID = "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "

#: Text -> finding, phase, words of the cause, flags. The frame above it does not tell more than "while starting".
STARTS: list[tuple[str, str, str, tuple[str, ...], tuple[str, ...]]] = [
    (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.508124",
        "refused-no-memory", "pools", ("Nothing is left for the KV pool",), (),
    ),
    (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.508124",
        "refused-no-memory", "pools", ("Nothing is left for the KV pool",), (),
    ),
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "refused-no-memory", "pools", (), ()),
    ("AssertionError: Memory pool size is too small", "refused-no-memory", "pools", ("Memory pool size",), ()),
    (
        ("ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.508124. Raise "
        "--mem-fraction-static above 0.393 (minimum viable = 1 - available/pre = 0.3924). If using speculative decoding, draft weights are now counted."),
        # 0.508124 - 0.3924 = 0.1157; of the 94.23 GiB that were free 10.90
        "refused-no-memory", "pools",
        ("It is not the weights: they take 0.3924", "0.508124 - 0.3924 = 0.1157 × 94.23 GiB = 10.90 GiB", "blames the weights"), (),
    ),
    (
        ("ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.3. Raise "
        "--mem-fraction-static above 0.393 (minimum viable = 1 - available/pre = 0.3924)."),
        "refused-weights", "pools", ("The weights take 0.3924 of the free memory, more than the fraction 0.3 allows",), (),
    ),
    (
        HYBRID + "max_mamba_cache_size=-3 (total_rest_memory=-1.25 GB, mamba_cache_per_req=146.81 MB). Try: (1) reduce "
        "--max-running-requests, (2) increase --mem-fraction-static, (3) reduce --speculative-num-draft-tokens, or (4) use GPUs with more memory.",
        "refused-state-pool", "pools",
        ("Nothing is left for the state pool", "One slot takes 146.81 MiB"), (),
    ),
    (
        ("RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. max_mamba_cache_size=4, "
        "mamba_ratio=5, resulting max_num_reqs=0. Try: (1) reduce --max-running-requests, (2) increase --mem-fraction-static, or (3) use GPUs with more memory."),
        "refused-state-pool", "pools", ("got 4 slots and one request needs 5: 4 // 5 = 0 requests",), ("--max-mamba-cache-size 5",),
    ),
    ("AssertionError: capture_bs=[0]", "refused-state-pool", "graphs", ("too small for a single request",), ()),
    ("AssertionError: max_running_request is zero", "refused-state-pool", "pools", ("too small for a single request",), ()),
    (
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=20.5, local_gpu_memory=78.25, local_gpu_memory * 0.9=70.425",
        # 0.9 × 78.25 = 70.425
        "refused-unbalanced", "load", ("least has 20.50 GiB free, this one 78.25", "0.9 × 78.25 = 70.4"), ("",),
    ),
    (
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. min_per_gpu_memory=20.5, local_gpu_memory=78.25, local_gpu_memory * 0.9=70.425",
        "refused-unbalanced", "load", ("least has 20.50 GiB free, this one 78.25",), ("",),
    ),
    (
        "RuntimeError: int8 mamba checkpoint pool needs ~9.38GB but only 4.20GB HBM is free. Lower --int8-mamba-ckpt-size (currently 512) or --mem-fraction-static.",
        # 9.38 GiB / 512 = 18.76 MiB each; 2 GiB stay free: 2.20 GiB / 18.76 MiB = 120
        "refused-int8-pool", "pools", ("takes 9.38 GiB, 4.20 GiB are free: 5.18 GiB are missing", "512 checkpoints take 18.76 MiB each"),
        ("--int8-mamba-ckpt-size 120",),
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0 has a total capacity of 23.56 GiB of which 338.75 MiB is free. Including non-PyTorch memory, this process has 23.06 GiB memory in use.",
        "out-of-memory-pools", "pools", ("384.00 MiB were asked for, 338.75 MiB of 23.56 GiB were free: 45.25 MiB are missing",), (),
    ),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.41 GiB.", "out-of-memory-pools", "pools", ("1.41 GiB were asked for",), ()),
    ("torch.AcceleratorError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", "out-of-memory-pools", "pools", (), ()),
    # the model and what runs it
    ("ValueError: Model architectures ['FooForCausalLM'] are not supported for now. Supported architectures: dict_keys(['LlamaForCausalLM'])", "refused-model", "load", ("no implementation of the model", "FooForCausalLM"), ()),
    ("RuntimeError: Cannot find any model weights with `/models/x`", "refused-model", "load", ("files were not found", "/models/x"), ()),
    ("OSError: Qwen/Nope is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'", "refused-model", "load", ("Qwen/Nope",), ()),
    ("OSError: Can't load tokenizer for '/models/x'. If you were trying to load it from 'https://huggingface.co/models'", "refused-model", "load", ("/models/x",), ()),
    ("AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use `--attention-backend flashinfer`.", "refused-arguments", "pools", ("does not run on this GPU",), ("--attention-backend flashinfer", "--attention-backend triton")),
    ("ValueError: TRTLLM MHA backend is only supported on Blackwell GPUs (SM100). Please use a different backend.", "refused-arguments", "pools", ("SM100",), ("--attention-backend flashinfer", "--attention-backend triton")),
    ("ValueError: TRTLLM MHA backend for prefill requires Hopper (SM90), Blackwell (SM100), or SM120 GPUs. Please use a different prefill backend.", "refused-arguments", "pools", ("Hopper",), ("--attention-backend flashinfer", "--attention-backend triton")),
    ("ValueError: TRTLLM MLA backend is only supported on Blackwell GPUs (SM100/SM12x). Please use a different backend.", "refused-arguments", "pools", ("SM100",), ("--attention-backend flashinfer", "--attention-backend triton")),
    ("torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be", "bad-environment", "pools", ("no kernels for this GPU",), ()),
    ("ModuleNotFoundError: No module named 'orjson'", "bad-environment", "pools", ("No module named 'orjson'",), ()),
    # beside it
    ("ValueError: dist_init_port at 30001 is not available in 30 seconds. dist_init_port is used by a process already.", "port-in-use", "load", ("listens on port 30001 (its own dist_init_port, derived from --port)",), ("--port 30101",)),
    ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use", "port-in-use", "load", ("port 29500",), ("--port 29600",)),
    ("zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:30001')", "port-in-use", "load", ("port 30001",), ("--port 30101",)),
    ("torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled system error", "communication-failed", "pools", ("could not communicate", "/dev/shm"), ("",)),
    ("OSError: [Errno 28] No space left on device", "disk-full", "pools", ("No space is left",), ()),
    ("OSError: [Errno 12] Cannot allocate memory", "out-of-host-memory", "pools", ("host (not the GPU)",), ()),
    ("RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.", "ended-by-signal", "load", ("rank 0 was ended by a signal", "SIGKILL", "dmesg"), ()),
    ("RuntimeError: Rank 1 scheduler died during initialization (exit code: 1).", "ended-by-signal", "load", ("rank 1 ended while starting with exit code 1", "give them"), ()),
    ("RuntimeError: Initialization failed. Please see the error messages above.", "ended-by-signal", "pools", ("The cause stands above: give the lines before it",), ()),
    ("KeyError: 'linear_attn_config'", "crashed-start", "pools", ("died while starting: KeyError: 'linear_attn_config'",), ()),
]  # fmt: skip


@pytest.mark.parametrize(("text", "finding_id", "phase", "words", "offered"), STARTS)
def test_a_start_that_failed(text: str, finding_id: str, phase: str, words: tuple[str, ...], offered: tuple[str, ...]):
    found = starting(text)
    finding = only(found)
    assert (finding.id, found.log.failures[0].phase) == (finding_id, phase)
    assert [word for word in words if word not in finding.cause] == []
    assert tuple(flags(finding)) == offered
    assert finding.evidence[-1].text.startswith(text.split("\n")[0][:60])
    assert all(remedy.basis == "source" and remedy.decided_by for remedy in finding.remedies)


CAPTURE_HINTS = "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"


@pytest.mark.parametrize(
    ("text", "version", "finding_id", "offered"),
    [
        (f"Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 512.00 MiB.\n{CAPTURE_HINTS}", "0.5.16", "out-of-memory-graphs", "--cuda-graph-max-bs-decode 8"),
        (f"Exception: Capture cuda graph failed: CUDA error: out of memory\n{CAPTURE_HINTS}", "0.5.16", "out-of-memory-graphs", "--cuda-graph-max-bs-decode 8"),
        (f"Exception: Capture cuda graph failed: no kernel image is available\n{CAPTURE_HINTS}", "0.5.16", "graph-capture-failed", "--cuda-graph-backend-decode disabled"),
        ("RuntimeError: Fail when using backend: tc_piecewise for prefill runner.\nPossible suggestions:\n1. x", "0.5.16", "graph-capture-failed", "--cuda-graph-backend-prefill disabled"),
    ],
)  # fmt: skip
def test_graphs_that_were_not_captured(text: str, version: str, finding_id: str, offered: str):
    finding = only(starting(text, CAPTURE, version=version))
    assert (finding.id, flags(finding)) == (finding_id, [offered])


def test_graphs_of_an_older_release_are_switched_off_by_its_own_flag():
    old = "[2026-05-20 10:11:12] Capture cuda graph begin. This can take up to several minutes. avail mem=12.24 GB"
    text = "Exception: Capture cuda graph failed: operation not permitted when stream is capturing"
    finding = only(paste(LOADED, old, HIT, CAPTURE, text, *QUIT))
    assert (finding.id, flags(finding)) == ("graph-capture-failed", ["--disable-cuda-graph"])
    assert "12.24 GiB were free" in finding.cause


@pytest.mark.parametrize(
    ("text", "finding_id", "words", "offered"),
    [
        (
            "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 2048 tokens.\nAvailable tokens: 15 (available_size=12 + evictable_size=3)",
            "kv-pool-exhausted",
            ("prefill step: 2,048 tokens were needed, 12 were free and 3 could be evicted", "3 ran, 2 waited, the KV pool 97% full"),
            ("--schedule-conservativeness 1.43", "--max-running-requests 4"),
        ),
        (
            "RuntimeError: Decode out of memory. Try to lower your batch size.\nTry to allocate 8 tokens.\nAvailable full tokens: 5 (full_available_size=4 + full_evictable_size_=1)",
            "kv-pool-exhausted",
            ("decode step: 8 tokens were needed, 4 were free and 1 could be evicted",),
            ("--schedule-conservativeness 1.43", "--max-running-requests 4"),
        ),
        (
            "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`. req_to_token_pool.available_size()=0, num_reqs=3, ",
            "request-slots-exhausted",
            ("3 were to begin, 0 rows were free",),
            ("--max-running-requests 4",),
        ),
        (
            "AssertionError: Not enough space for mamba cache, try to increase --max-mamba-cache-size.",
            "state-slots-exhausted",
            ("No slot of the state pool was free for the state of a request (of 28)",),
            ("--max-mamba-cache-size 56", "--max-running-requests 4", "--disable-radix-cache"),
        ),
        (
            "AssertionError: Not enough space for mamba cache, try to increase --mamba-full-memory-ratio or --max-mamba-cache-size. mid=None, self.mamba_pool.size=12, self.mamba_allocator.available_size()=0, len(reqs)=2",
            "state-slots-exhausted",
            ("(0 of 12 free)",),
            ("--max-mamba-cache-size 24", "--max-running-requests 4", "--disable-radix-cache"),
        ),
        (
            "AssertionError: Not enough space for mamba ping pong idx, try to increase --mamba-full-memory-ratio.",
            "state-slots-exhausted",
            ("ping-pong buffer",),
            ("--max-mamba-cache-size 56", "--max-running-requests 4", "--disable-radix-cache"),
        ),
        (
            "AssertionError: Can not alloc mamba cache",
            "state-slots-exhausted",
            ("a cached prefix that a request continues",),
            ("--max-mamba-cache-size 56", "--max-running-requests 4", "--disable-radix-cache"),
        ),
        (
            "AssertionError: Can not alloc int8 mamba checkpoint slot",
            "state-slots-exhausted",
            ("int8 checkpoint",),
            ("--int8-mamba-ckpt-size 1024", "--max-running-requests 4", "--disable-radix-cache"),
        ),
        (
            # 87,000 + 50 + 0 = 87,050 of 87,061
            "ValueError: token_to_kv_pool_allocator memory leak detected! self.max_total_num_tokens=87061, available_size=87000, evictable_size=50, protected_size=0",
            "memory-leak",
            ("87,000 free + 50 cached + 0 locked = 87,050 of 87,061, 11 are missing",),
            ("",),
        ),
        (
            "ValueError: pool memory leak detected! [full] total=87061, available=87000, evictable=0, protected=0, session_held=0, uncached=0",
            "memory-leak",
            ("= 87,000 of 87,061, 61 are missing",),
            ("",),
        ),
        (
            "ValueError: req_to_token_pool memory leak detected!available_size=3, session_held=0, total_size=4",
            "memory-leak",
            ("the req_to_token_pool does not add up",),
            ("",),
        ),
        (
            "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported at some other API call",
            "crashed-serving",
            ("an illegal memory access was encountered", "CUDA_LAUNCH_BLOCKING=1"),
            ("",),
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 626.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 168.00 MiB is free.",
            # 626 - 168 = 458 MiB
            "out-of-memory-serving",
            ("activations did not fit", "458.00 MiB are missing"),
            (),
        ),
        ("KeyError: 7", "crashed-serving", ("died while serving: KeyError: 7", "to be reported"), ()),
    ],
)  # fmt: skip
def test_a_server_that_died_while_serving(text: str, finding_id: str, words: tuple[str, ...], offered: tuple[str, ...]):
    told = {"max_running_requests": 8, "max_mamba_cache_size": 28, "int8_mamba_ckpt_size": 512}
    found = serving(text, **told)
    finding = only(found)
    assert (found.status, finding.id, found.log.failures[0].phase) == ("crashed", finding_id, "serving")
    assert [word for word in words if word not in finding.cause] == []
    assert tuple(flags(finding)) == offered


def test_a_strict_check_for_leaks_is_switched_off_by_its_variable():
    finding = only(serving("ValueError: pool memory leak detected! [full] total=9, available=8, evictable=0"))
    (remedy,) = finding.remedies
    assert "8 free + 0 cached = 8 of 9, 1 is missing" in finding.cause  # what is locked is not said
    assert dict(remedy.set) == {"engine.env.SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "0"}
    assert remedy.note.startswith("SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE=0 in the server's environment; ")


#: Refusal of arguments -> words of the cause, and what is offered: changed keys.
ARGUMENTS_REFUSED: list[tuple[str, str, list[dict[str, Any]]]] = [
    (
        "ValueError: Speculative decoding for Qwen3_5ForConditionalGeneration is not compatible with radix cache when using --mamba-scheduler-strategy no_buffer.To use radix cache with speculative decoding, please use --mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1.",
        "needs the strategy extra_buffer up to 0.5.13",
        [{"memory.mamba_radix_cache_strategy": "extra_buffer", "engine.env.SGLANG_ENABLE_SPEC_V2": "1"}, {"memory.disable_radix_cache": True}],
    ),
    (
        "ValueError: mamba extra_buffer is not compatible with --disable-radix-cache Overlap scheduling is already supported with no_buffer + disable_radix_cache. Please use --mamba-scheduler-strategy no_buffer instead.",
        "which --disable-radix-cache switches off",
        [{"memory.mamba_radix_cache_strategy": "no_buffer"}, {"memory.disable_radix_cache": False}],
    ),
    (
        # the least multiple of 64 from 300 on is 320
        "AssertionError: mamba_track_interval 256 must be greater than or equal to speculative_num_draft_tokens 300",
        "kept every 256 tokens (mamba_track_interval), and 300 are verified",
        [{"engine.args.mamba-track-interval": 320}, {"speculative.num_draft_tokens": 256}],
    ),
    (
        # lcm(96, 64) = 192, and 2 × 192 = 384 is the least multiple from 256 on; gcd(256, 96) = 32
        "AssertionError: mamba_track_interval 256 must be divisible by page_size 96",
        "no whole number of pages of 96",
        [{"engine.args.mamba-track-interval": 384}, {"memory.page_size": 32}],
    ),
    (
        "AssertionError: extra_buffer is not supported for FooForCausalLM; use no_buffer.",
        "not made for FooForCausalLM",
        [
            {"memory.mamba_radix_cache_strategy": "auto"},
            {"memory.mamba_radix_cache_strategy": "no_buffer", "memory.disable_overlap_schedule": True},
            {"memory.disable_radix_cache": True},
        ],
    ),
    (
        "AssertionError: mamba extra_buffer is not supported for FooForCausalLM model",
        "not made for FooForCausalLM",
        [
            {"memory.mamba_radix_cache_strategy": "auto"},
            {"memory.mamba_radix_cache_strategy": "no_buffer", "memory.disable_overlap_schedule": True},
            {"memory.disable_radix_cache": True},
        ],
    ),
    ("AssertionError: extra_buffer_lazy unsupported with spec.", "before 0.5.18", [{"memory.mamba_radix_cache_strategy": "extra_buffer"}]),
    ("AssertionError: extra_buffer_lazy is not yet supported with speculative decoding. Use --mamba-scheduler-strategy extra_buffer instead.", "before 0.5.18", [{"memory.mamba_radix_cache_strategy": "extra_buffer"}]),
    ("AssertionError: Lazy extra buffer requires overlap schedule (--disable-overlap-schedule is incompatible)", "needs overlap scheduling", [{"memory.mamba_radix_cache_strategy": "extra_buffer"}]),
    ("ValueError: --mamba-radix-cache-strategy extra_buffer needs mamba state, got LlamaForCausalLM.", "LlamaForCausalLM has none", [{"memory.mamba_radix_cache_strategy": "auto"}]),
    (
        "AssertionError: no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True.",
        "does not run with overlap scheduling",
        [{"memory.disable_overlap_schedule": True}, {"memory.mamba_radix_cache_strategy": "extra_buffer"}, {"memory.disable_radix_cache": True}],
    ),
    ("AssertionError: no_buffer only supports page_size=1.", "pages of one token", [{"memory.page_size": 1}, {"memory.mamba_radix_cache_strategy": "extra_buffer"}]),
    ("AssertionError: no_buffer do not support trtllm_mha attention backend.", "trtllm_mha", [{"memory.mamba_radix_cache_strategy": "extra_buffer"}, {"engine.args.attention-backend": "flashinfer"}]),
    ("ValueError: --enable-linear-replayssm-spec with DSPARK/DFLASH requires a KDA (kimi_linear) model; got a non-KDA model.", "KDA layers only", [{"engine.args.enable-linear-replayssm-spec": False}]),
    (
        "ValueError: --enable-linear-replayssm requires --mamba-radix-cache-strategy no_buffer (the default); got extra_buffer.",
        "strategy no_buffer only",
        [{"memory.mamba_radix_cache_strategy": "no_buffer", "memory.disable_overlap_schedule": True}, {"engine.args.enable-linear-replayssm": False}],
    ),
    ("ValueError: --enable-unified-memory + EAGLE/EAGLE3/DFLASH on a mamba-hybrid target needs the draft's KV fused into the target's pages, which this build does not do.", "EAGLE/EAGLE3/DFLASH", [{"engine.args.enable-unified-memory": False}]),
    ("AssertionError: NemotronHForCausalLM does not support triton attention backend,as the first layer might not be an attention layer", "attention backend triton", [{"engine.args.attention-backend": "flashinfer"}]),
    (
        "ValueError: Warning: User-specified context_length (300000) is greater than the derived context_length (262144). This may lead to incorrect model outputs or CUDA errors.",
        "300000 tokens is asked, and the model was made for 262144",
        [{"memory.context_length": 262144}, {"engine.env.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words", "changes"), ARGUMENTS_REFUSED)
def test_arguments_that_were_refused(text: str, words: str, changes: list[dict[str, Any]]):
    found = paste(*MAIN, ARGUMENTS, text)
    finding = only(found)
    assert (found.status, finding.id, found.log.failures[0].phase) == ("refused", "refused-arguments", "arguments")
    assert words in finding.cause
    assert [dict(remedy.set) for remedy in finding.remedies] == changes
    for remedy in finding.remedies:
        left_out = not any(value not in (False, "auto") for value in remedy.set.values())
        assert remedy.flags or "environment" in remedy.note or (left_out and "without --" in remedy.note)


def test_flags_are_named_as_the_release_that_prints_the_text_names_them():
    old, new = ARGUMENTS_REFUSED[0][0], ARGUMENTS_REFUSED[10][0]
    assert flags(only(paste(*MAIN, ARGUMENTS, old)))[0] == "--mamba-scheduler-strategy extra_buffer"
    assert flags(only(paste(*MAIN, ARGUMENTS, new)))[1] == "--mamba-radix-cache-strategy extra_buffer"


@pytest.mark.parametrize(
    ("words", "hint", "offered"),
    [
        ("--mamba-ful-memory-ratio 0.5", "--mamba-ful-memory-ratio is no flag of SGLang; the nearest is --mamba-full-memory-ratio.", []),
        ("--disable-piecewise-cuda-graph", "--disable-piecewise-cuda-graph is known from SGLang 0.5.10 to 0.5.19", []),
        ("--mamba-scheduler-strategy extra_buffer", "--mamba-scheduler-strategy is called --mamba-radix-cache-strategy in SGLang 0.5.23.", ["--mamba-radix-cache-strategy extra_buffer"]),
    ],
)  # fmt: skip
def test_flags_that_the_parser_does_not_know(words: str, hint: str, offered: list[str]):
    finding = only(paste(f"launch_server.py: error: unrecognized arguments: {words}", BEGINS))
    assert (finding.id, flags(finding)) == ("refused-arguments", offered)
    assert finding.cause.startswith(hint)


# ── what the engine says of itself ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("[2026-05-20 10:11:13 TP0] Watchdog timeout (self.watchdog_timeout=300)", "--watchdog-timeout 900"),
        ("[2026-05-20 10:11:13 TP0] Scheduler watchdog timeout (self.watchdog_timeout=60.0, self.soft=False)", "--watchdog-timeout 180"),
    ],
)  # fmt: skip
def test_a_watchdog_that_ended_the_server(line: str, offered: str):
    finding = only(paste(READY, DECODE, line, *QUIT))
    assert (finding.id, flags(finding)) == ("watchdog-timeout", [offered])
    assert "while serving" in finding.cause and "3 ran, 2 waited" in finding.cause


HEALTH = "[2026-05-20 10:11:13] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 10:10:53. last_heartbeat time: 10:10:40"
SOFT = "[2026-05-20 10:11:13 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300.0, self.soft=True)"
LEAKS = "[2026-05-20 10:11:13 TP0] pool memory leak detected! [full] total=9, available=8, evictable=0"


@pytest.mark.parametrize(
    ("line", "finding_id", "words"),
    [
        (HEALTH, "health-check-failed", "2 health checks failed: nothing came back from the model within 20 s"),
        (SOFT, "watchdog-timeout", "did not finish a step within 300 s (2 times); the watchdog is soft"),
        (LEAKS, "memory-leak", "the pool does not add up (said 2 times"),
    ],
)
def test_a_server_that_is_unwell_and_goes_on(line: str, finding_id: str, words: str):
    found = paste(READY, DECODE, line, line, DECODE)
    (finding,) = found.findings
    assert (found.status, finding.id, finding.severity) == ("served", finding_id, "costly")
    assert words in finding.cause


# ── the cause, not what follows from it ──────────────────────────────────────────────────────────────────────────────

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB."
OTHER_RANKS = [
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/x.cpp:94, remote process exited",
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1234",
]


@pytest.mark.parametrize("consequence", OTHER_RANKS)
@pytest.mark.parametrize("first", ["cause", "consequence"])
def test_of_several_ranks_the_one_that_failed_by_itself(consequence: str, first: str):
    cause = [HIT, BUILD, OOM, ""]
    other = [HIT.replace("TP0", "TP1"), BUILD, consequence, ""]
    lines = [*cause, *other] if first == "cause" else [*other, *cause]
    found = paste(BEGINS, *lines, *QUIT)
    assert (only(found).id, found.log.failures[0].rank) == ("out-of-memory-start", "TP0")


def test_a_rank_that_waits_in_a_collective_operation_follows_too():
    waits = f'  File "{SRT}distributed/parallel_state.py", line 500, in all_reduce'
    other = [HIT.replace("TP0", "TP1"), waits, "RuntimeError: unspecified", ""]
    found = paste(READY, *other, HIT, LOOP, "KeyError: 7", *QUIT)
    assert (only(found).cause.partition(" (")[0], found.log.failures[0].rank) == (
        "The server died while serving: KeyError: 7.",
        "TP0",
    )


@pytest.mark.parametrize("last", ["RuntimeError: Initialization failed. Please see the error messages above.", "RuntimeError: Rank 1 scheduler died during initialization (exit code: -9)."])  # fmt: skip
def test_what_the_parent_says_is_a_consequence(last: str):
    parent = [*MAIN, f'  File "{SRT}entrypoints/engine.py", line 1345, in _wait', last]
    found = paste(BEGINS, *parent, "", HIT, BUILD, OOM, *QUIT)
    assert only(found).id == "out-of-memory-start"


@pytest.mark.parametrize(
    "lines",
    [
        QUIT[1:2],
        ["[2026-05-20 10:11:13] SIGQUIT received. signum=None, frame=None. It usually means one child failed."],
        QUIT[2:],
        ["[2026-05-20 10:11:13] Subprocess scheduler_0 (pid=1120) crashed with exit code -15. Triggering SIGQUIT for cleanup..."],
    ],
)  # fmt: skip
def test_a_paste_of_consequences_alone_asks_for_the_lines_above(lines: list[str]):
    finding = only(paste(*lines))
    assert finding.id == "ended-by-signal"
    assert "The cause stands above: give the lines before it" in finding.cause
    assert finding.evidence[0].text == lines[0]


def test_a_process_that_was_killed_without_a_word():
    line = "[2026-05-20 10:11:13] Subprocess scheduler_0 (pid=1120) crashed with exit code {}. Triggering SIGQUIT for cleanup..."
    killed = only(paste(READY, DECODE, line.format(-9), *QUIT))
    assert (killed.id, killed.severity) == ("ended-by-signal", "fatal")
    assert "scheduler_0 was ended by a signal while serving" in killed.cause and "SIGKILL" in killed.cause
    assert "SIGSEGV" in only(paste(READY, line.format(-11))).cause


def test_an_orderly_end_is_no_failure():
    end = "[2026-05-20 10:11:14] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    assert paste(READY, DECODE, end, QUIT[2]).findings == ()
    child = "[2026-05-20 10:11:15] Subprocess scheduler_0 (pid=15907) crashed with exit code -15. Triggering SIGQUIT for cleanup..."
    sigquit = "[2026-05-20 10:11:15] SIGQUIT received. signum=None, frame=None. It usually means one child failed."
    found = paste(READY, DECODE, end, child, sigquit)  # as 0.5.23 ends when it is stopped
    assert (found.status, found.findings) == ("served", ())
    assert only(paste(READY, DECODE, child, sigquit, end)).id == "ended-by-signal"  # what ended before nobody asked for


def test_a_start_that_is_stopped_from_outside_says_so():
    load = "[2026-05-20 10:11:13] Load weight begin. avail mem=139.12 GB"
    end = "[2026-05-20 10:11:14] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    finding = only(paste(load, end, QUIT[2]))
    assert (finding.id, finding.severity, finding.evidence[0].line) == ("ended-by-signal", "fatal", 2)
    assert "asked the server to stop (SIGTERM) before it was ready" in finding.cause


def test_a_traceback_that_is_cut_off_asks_for_the_lines_below():
    finding = only(paste(READY, DECODE, HIT, LOOP))
    assert finding.id == "crashed-serving"
    assert "before it says why: give the lines below it" in finding.cause


def test_the_port_is_read_from_uvicorns_own_line():
    line = "[2026-05-20 10:11:13] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 31120): address already in use"
    finding = only(paste(READY, line, QUIT[2]))
    assert finding.id == "port-in-use"
    assert "listens on port 31120" in finding.cause and "says that it is ready all the same" in finding.cause
    (remedy,) = finding.remedies
    assert (dict(remedy.set), remedy.flags) == ({"engine.port": 31220}, "--port 31220")


def test_a_first_request_to_itself_that_failed():
    line = "[2026-05-20 10:11:13] Initialization failed. warmup error: Traceback (most recent call last):"
    finding = only(paste(BEGINS, line, '  File "x.py", line 1, in f', "AssertionError: res=<Response [503]>", *QUIT))
    assert (finding.id, "NO_PROXY" in finding.cause) == ("crashed-start", True)


# ── what only looks like it ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "line",
    [
        "[2026-05-20 10:11:13] Not enough memory for the image: resized",
        "[2026-05-20 10:11:13 TP0] max_running_requests was changed",
        "[2026-05-20 10:11:13] The watchdog timeout is 300 s",
        "[2026-05-20 10:11:13] Health check request received during shutdown. Returning 503.",
        "[2026-05-20 10:11:13] Receive: obj=GenerateReqInput(text='RuntimeError: Prefill out of memory. Try to lower your batch size.')",
        '[2026-05-20 10:11:13] INFO:     127.0.0.1:40992 - "GET /health HTTP/1.1" 503 Service Unavailable',
        '[2026-05-20 10:11:13] INFO:     127.0.0.1:40992 - "POST /generate HTTP/1.1" 200 OK',
        "Traceback (most recent call last):",
        "[rank0]:[W1130 05:57:55 ProcessGroupNCCL.cpp:1575] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.",
    ],
)  # fmt: skip
def test_a_line_that_only_looks_like_a_failure_gives_nothing(line: str):
    found = paste(READY, DECODE, line, DECODE)
    assert (found.status, found.findings) == ("served", ())


def test_a_library_that_was_tried_and_caught_gives_nothing():
    caught = [
        "Traceback (most recent call last):",
        BUILD,
        "OSError: Qwen/x does not appear to have a file named generation_config.json.",
        "",
    ]
    assert paste(LOADED, *caught, READY, DECODE).findings == ()
    assert only(paste(LOADED, *caught, HIT, BUILD, "KeyError: 7", *QUIT)).id == "crashed-start"
