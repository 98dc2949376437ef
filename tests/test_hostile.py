"""Hostile and broken input: whatever is given as a log is answered, or refused in two lines; clean, and in time."""

# ruff: noqa: E501  (lines of logs are quoted whole)
from __future__ import annotations

import contextlib
import gzip
import io
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.diagnose.diagnosis import of_log, of_path
from specbench.errors import LogFormatError, RecordError, SpecbenchError
from specbench.logclean import without_controls
from specbench.show.findings import findings
from specbench.studies.opened import opened

from .fuzz.asking import FORBIDDEN, SEEDS, answered, mutated

HERE = Path(__file__).parent
ALL = [path.read_bytes() for path in SEEDS]

# ── what is no log of ours ───────────────────────────────────────────────────────────────────────────────────────────

VLLM = b"""\
(APIServer pid=1391815) INFO 08-19 14:58:10 [api_server.py:1882] vLLM API server version 0.10.2
(EngineCore_0 pid=1399537) INFO 08-19 14:58:23 [core.py:75] Initializing a V1 LLM engine (v0.10.2) with config: model='m'
(EngineCore_0 pid=1399537) INFO 08-19 14:58:40 [gpu_worker.py:277] Available KV cache memory: 112.61 GiB
(EngineCore_0 pid=1399537) INFO 08-19 14:58:40 [kv_cache_utils.py:849] GPU KV cache size: 922,496 tokens
"""
VLLM_TAIL = b"""\
INFO 11-29 13:02:10 [loggers.py:127] Engine 000: Avg prompt throughput: 2.9 tokens/s, Avg generation throughput: 7.0
Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/vllm/v1/engine/core.py", line 842, in run_engine_core
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0 has a total capacity of 23.56 GiB
"""
TENSORRT = b"""\
[TensorRT-LLM] TensorRT-LLM version: 0.15.0
[TensorRT-LLM][INFO] TRTGptModel maxNumSequences: 8
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 78.30 GiB for max tokens in paged KV cache (3731744).
"""
TRTLLM_SERVE = b"[11/30/2026-05:45:20] [TRT-LLM] [I] Setting PluginConfig.dtype to bfloat16\n"
LLAMA = b"""\
llama_model_loader: loaded meta data with 39 key-value pairs and 272 tensors from m.gguf (version GGUF V3 (latest))
llama_context: graph splits = 2
main: server is listening on http://127.0.0.1:8080 - starting the main loop
"""
OLLAMA = b"""\
time=2025-02-10T11:19:53.666+08:00 level=INFO source=server.go:376 msg="starting llama server" cmd="ollama runner"
time=2025-02-10T11:19:53.670+08:00 level=INFO source=sched.go:449 msg="loaded runners" count=1
[GIN] 2025/02/10 - 11:20:01 | 200 |  1.2s | 127.0.0.1 | POST "/api/chat"
"""
TGI = b"""\
2024-01-17T19:54:02.802403Z  INFO text_generation_launcher: Args { model_id: "bigscience/bloom-560m", port: 3000 }
2024-10-16T10:48:41.374381Z  INFO shard-manager: text_generation_launcher: Waiting for shard to be ready... rank=2
"""
LMDEPLOY = b"""\
2024-08-05 05:40:52,191 - lmdeploy - WARNING - model_source: hf_model
[TM][WARNING] [LlamaTritonModel] max_context_token_num = 16384.
"""
ROUTER = b"2026-05-20 10:11:12  INFO sglang_router_rs::server: src/server.rs:120: Starting router on 0.0.0.0:30000\n"

EXPECTED = [
    (VLLM, r"a log of vLLM, by line 1 \("),
    (b"\n\n" + VLLM_TAIL, r"a log of vLLM, by line 3 \("),
    (TENSORRT, "a log of TensorRT-LLM, by line 1 "),
    (TRTLLM_SERVE, "a log of TensorRT-LLM, by line 1 "),
    (LLAMA, "a log of llama.cpp, by line 1 "),
    (OLLAMA, "a log of Ollama, by line 1 "),
    (TGI, "a log of Text Generation Inference, by line 1 "),
    (LMDEPLOY, "a log of LMDeploy, by line 1 "),
    (ROUTER, "a log of SGLang's router, by line 1 "),
    (b"", "empty; expected"),
    (b"\n\n \n", "empty; expected"),
    (b"\x7fELF" + bytes(range(256)) * 40, r"a program \(ELF\), a binary file"),
    (bytes(range(256)) * 400, "a binary file; expected text"),
    (random.Random(0).randbytes(5000), "a binary file; expected text"),
    (b"PK\x03\x04" + bytes(400), "a zip archive, a binary file.*\nUnpack it first"),
    (b"\xfd7zXZ\x00" + bytes(range(256)), "xz, a binary file.*\nUnpack it first"),
    (b'{"model": "x"}\n', "JSON, by line 1"),
    (b"<!DOCTYPE html><html><body>502</body></html>", "a page of HTML, by line 1"),
    (b"hello\nworld\n", "2 lines, and none is a known line of an SGLang server"),
    ((HERE / "logs/sglang/cases/bench-serving-oai-c512-accept321.log").read_bytes(), r"a client's report"),
    ((HERE / "logs/sglang/cases/bench-dflash-jetspec-jsonl.log").read_bytes(), r"a client's report"),
    ((HERE / "logs/sglang/cases/bench-one-batch-server-row.log").read_bytes(), r"a report of a client"),
]


@pytest.mark.parametrize(("data", "said"), EXPECTED, ids=[said[:28] for _, said in EXPECTED])
def test_what_is_no_log_of_ours_is_named_in_two_lines(data: bytes, said: str) -> None:
    with pytest.raises(LogFormatError, match=rf"^x\.log: {said}") as caught:
        of_log(io.BytesIO(data), name="x.log")
    assert str(caught.value).count("\n") == 1
    assert "Give the whole output of an SGLang server" in str(caught.value)


@pytest.mark.parametrize("data", [VLLM, LLAMA, TGI, ROUTER])
def test_a_text_that_is_ours_in_part_is_read(data: bytes) -> None:
    """A proxy before the server, or a comparison of two engines: one line of a server is enough."""
    line = b"[2026-05-20 10:11:12 TP0] KV Cache is allocated. #tokens: 87061, K size: 2.66 GB, V size: 2.66 GB\n"
    (pools,) = of_log(io.BytesIO(data + line + data), name="x.log").pools.ranks
    assert pools.kv_tokens == 87061


def test_what_cannot_be_unpacked_says_so(tmp_path: Path) -> None:
    file = tmp_path / "server.log.gz"
    file.write_bytes(gzip.compress(b"x" * 1000)[:10])
    with pytest.raises(LogFormatError, match=r"^server.log.gz: 10 bytes of which no line can be unpacked; .*\n.*tee"):
        of_path(file)


def test_a_folder_names_the_logs_in_it(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no record here.*\n"):
        of_path(tmp_path)
    for name in ("rank0.log", "rank 1.log.gz", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(RecordError) as caught:
        of_path(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: a folder, and no record in it; it holds 2 logs.\n"
        f"Name one, or all that are of one server: specbench diagnose '{tmp_path}/rank 1.log.gz' {tmp_path}/rank0.log"
    )


# ── anything ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.one_of(st.binary(max_size=3000), st.text(max_size=1000).map(lambda text: text.encode("utf-8", "replace"))))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_answered_or_refused(data: bytes) -> None:
    answered(data)


@given(st.integers(0, 10**9), st.integers(0, len(ALL) - 1))
@settings(max_examples=40, deadline=None)
def test_a_real_log_with_something_wrong_is_answered(seed: int, which: int) -> None:
    answered(mutated(ALL[which], random.Random(seed)))


@pytest.mark.parametrize(
    "figures",
    [
        "KV Cache is allocated. #tokens: 8, K size: -1.00 GB, V size: -1.00 GB",
        "Decode batch, #running-req: 8, #token: 8, token usage: 0.01, accept len: 1" + "0" * 14 + ".00, "
        "gen throughput (token/s): nan, #queue-req: 2",
        (
            "Decode batch, #running-req: 8, #token: 8, token usage: inf, accept len: 1e308, "
            "gen throughput (token/s): inf, #queue-req: 2"
        ),
    ],
)
def test_figures_out_of_all_bounds_are_no_error(figures: str) -> None:
    """Found by fuzzing: an interval that ends before it begins, a mean that overflows, a document with NaN."""
    answered(f"[2026-05-20 10:11:12 TP0] {figures}\n".encode() * 3)


def test_a_damaged_line_that_is_the_only_one_of_its_kind_is_no_error() -> None:
    """Found by fuzzing: after a prefill, the only decode line counts time in which nothing ran, and is below zero."""
    answered(
        b"[2026-05-20 10:11:12 TP0] Prefill batch, #new-seq: 1, #new-token: 1024, #cached-token: 0, full token usage: 0.00, "
        b"mamba usage: 0.05, #running-req: 0, #queue-req: 0, cuda graph: False, input throughput (token/s): 484.16\n"
        b"[2026-05-20 10:11:19 TP0] Decode batch, #running-req: 8, #full token: 8504, full token usage: 0.01, mamba num: 32, "
        b"mamba usage: 0.41, accept len: 1.00, accept rate: 0.00, cuda graph: True, gen throughput (token/s): -1, "
        b"#queue-req: 0\n"
    )


HOSTILE = (
    *("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "\u202egnp.exe", "a\u2028b"),
    *("\\x1b[2J", "\\u202e", "\\udc80", "<script>alert(1)</script>", "[bold red]x[/nothing]"),
)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_is_shown_as_text(hostile: str, tmp_path: Path) -> None:
    """In a line, in a name that the arguments spell as a literal, in the text of an exception, in the file's name."""
    text = (
        f"[2026-05-20 10:11:12] server_args=ServerArgs(model_path='/m/{hostile}', max_running_requests=8, "
        f"speculative_algorithm='{hostile}', device='{hostile}')\n"
        f"[2026-05-20 10:11:13 TP0] KV Cache is allocated. {hostile} #tokens: 87061, K size: 2.66 GB, V size: {hostile}\n"
        "[2026-05-20 10:11:14 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/sglang/srt/x.py", line 1, in run\n'
        f"RuntimeError: {hostile} Not enough memory. Please try to increase --mem-fraction-static. {hostile}\n"
    )
    document, shown = answered(text.encode())
    assert "Not enough memory" in document
    assert "Not enough memory" in " ".join(shown.split())
    file = tmp_path / f"{hostile.replace('/', '')}\n.log"
    file.write_text(text, encoding="utf-8")
    seen = opened(file)
    assert not FORBIDDEN.search(seen.diagnosis.name + seen.diagnosis.source)
    assert "\n" not in seen.diagnosis.name
    page = findings(seen)
    assert not FORBIDDEN.search(page.html + page.text)
    assert "<script" not in page.html
    assert "Not enough memory" in page.html


def test_what_cannot_be_seen_is_dropped() -> None:
    """Zero width, soft marks of direction, and the tags that carry a hidden text: two lines that look alike are alike."""
    unseen = "\u200b\u200d\u200e\u061c\u180e\u2060\u2063\u206a\ufeff\ufffa\U000e0041\U000e007f"
    assert without_controls(f"a{unseen}b\tc\nd é 火 🚀") == "ab\tc\nd é 火 🚀"


# ── in time ──────────────────────────────────────────────────────────────────────────────────────────────────────────

ARGS = b"[2026-05-20 10:11:12] server_args=ServerArgs(model_path='m', a="
TALL = {
    "one line of letters": lambda n: b"a" * n,
    "one line of brackets": lambda n: b"[" * n,
    "brackets that close": lambda n: b"] [" * (n // 3),
    "nested arguments": lambda n: ARGS + b"[" * (n // 2) + b"]" * (n // 2) + b")",
    "arguments without end": lambda n: ARGS + b"'\\" * (n // 2),
    "many arguments": lambda n: ARGS + b"1, b=" * (n // 5) + b"2)",
    "many starts": lambda n: (ARGS + b"1)\n") * (n // 65),
    "carriage returns": lambda n: b"\rKV Cache is allocated. " * (n // 24),
    "tracebacks without end": lambda n: b"Traceback (most recent call last):\n" * (n // 35),
    "errors that cause errors": lambda n: (
        b"Traceback (most recent call last):\nValueError: x\n\nDuring handling of the above exception, another\n"
        * (n // 100)
    ),
    "escapes": lambda n: b"\x1b[" * (n // 2),
    "JSON of docker": lambda n: b'{"log":"x\\n","stream":"stderr"}\n' * (n // 32),
    "nested JSON": lambda n: b'{"log":' * (n // 7),
    "quotations": lambda n: b"> " * (n // 2),
    "pool lines": lambda n: b"[TP0] KV Cache is allocated. #tokens: 8, K size: 2.66 GB, V size: 2.66 GB\n" * (n // 75),
    "cut pool lines": lambda n: b"[TP0] KV Cache is allocated. #tokens: 8\n" * (n // 40),
    "ranks": lambda n: b"".join(
        b"[2026-05-20 10:11:12 TP%d] KV Cache is allocated. #tokens: 8, K size: 2.66 GB, V size: 2.66 GB\n" % rank
        for rank in range(n // 97)
    ),
    "batch lines": lambda n: (
        b"[2026-05-20 10:11:12] Decode batch, #running-req: 8, #token: 8, token usage: 0.0, "
        b"gen throughput (token/s): 1.0, #queue-req: 2\n" * (n // 130)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TALL)
def test_time_grows_no_faster_than_the_text(name: str) -> None:
    """Eight times the text, at most sixteen times the time: a square would take sixty-four."""
    make: Callable[[int], bytes] = TALL[name]
    few, many = (_seconds(make(size)) for size in (20_000, 160_000))
    assert many < 16 * few + 0.1, f"{few:.3f} s, {many:.3f} s"


def _seconds(data: bytes) -> float:
    def once() -> float:
        start = time.process_time()
        with contextlib.suppress(SpecbenchError):
            of_log(io.BytesIO(data), name="x.log")
        return time.process_time() - start

    return min(once() for _ in range(2))
