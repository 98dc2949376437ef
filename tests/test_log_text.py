"""Logs as they come: through launchers, containers, terminals and mail programs; cut, wrapped, mixed and hostile."""

# ruff: noqa: E501  (lines of logs are quoted whole)
from __future__ import annotations

import gzip
import io
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.engines.contract import ServerLog
from specbench.engines.sglang import logs
from specbench.engines.sglang.logs import batches
from specbench.logtext import CHUNK_BYTES, blocks
from specbench.units import GIB, Quantity

HERE = Path(__file__).parent
RECORDING = HERE / "records" / "tp2_dflash_r8" / "server.log"

STATE = (
    "Mamba Cache is allocated. max_mamba_cache_size: 24, conv_state size: 0.07GB, ssm_state size: 3.52GB "
    "intermediate_ssm_state_cache size: 11.25GB intermediate_conv_window_cache size: 0.22GB "
)
KV = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 87061, K size: 2.66 GB, V size: 2.66 GB"
END = "Memory pool end. avail mem=62.47 GB"
DECODE = (
    "Decode batch, #running-req: {running}, #full token: 1063, full token usage: 0.01, mamba num: 4, mamba usage: 0.50, "
    "accept len: 1.00, accept rate: 0.00, cuda graph: True, gen throughput (token/s): 33.64, #queue-req: {queued}"
)


def gib(size: float) -> Quantity:
    return Quantity(round(size * GIB), 5_368_710)


def pools(log: ServerLog) -> list[tuple[str, str, int]]:
    """(rank, role, slots or tokens) of all pools."""
    states = [(pool.rank, pool.role, pool.slots) for pool in log.state_pools]
    return states + [(pool.rank, pool.role, pool.tokens) for pool in log.kv_pools]


@pytest.mark.parametrize("bracket", ["", "[2026-05-20 10:11:12 TP0] "])
def test_a_log_that_ends_amid_a_count_does_not_tell_it(bracket: str) -> None:
    """Of 541,003 tokens it was 5: a server that has room for nothing. The count alone is a line that people paste."""
    whole = f"{bracket}max_total_num_tokens=541003"
    pool = "[2026-05-20 10:11:11 TP0] KV Cache is allocated. #tokens: 541003, K size: 4.13 GB, V size: 4.13 GB\n"
    for cut in range(len(whole) - 5, len(whole) + 1):
        log = logs.read(io.BytesIO(f"{pool}{whole[:cut]}".encode()))
        assert log.resolved == ()
        assert [line.text for line in log.unread] == [whole[:cut]]
    (row,) = logs.read(io.BytesIO(f"{pool}{whole}\n".encode())).resolved
    assert row.kv_tokens == 541003


def test_two_processes_that_wrote_as_one_rank_are_told() -> None:
    """Two servers in one file, or a rank named wrongly. A draft of the target's own class loads after it, not beside."""
    begin = "[2026-05-20 10:11:1{} TP0] Load weight begin. avail mem=94.00 GB\n"
    end = "[2026-05-20 10:11:1{} TP0] Load weight end. elapsed=1.00 s, type=Qwen3ForCausalLM, avail mem=80.00 GB, mem usage=14.00 GB.\n"

    def said(*lines: str) -> tuple[str, ...]:
        text = "".join(line.format(number) for number, line in enumerate(lines))
        return logs.read(io.BytesIO(text.encode())).assumptions

    assert said(begin, begin, end, end) == (
        (
            "two processes wrote as TP0: lines 3 and 4 both end a load of Qwen3ForCausalLM that was begun before; "
            "its figures are mixed"
        ),
    )
    assert said(begin, end, begin, end) == ()
    assert said(begin, begin, end) == ()  # the end of the first is not in the log


# ── prefixes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("", ""),
        ("[2026-05-20 10:11:12] ", ""),
        ("[2026-05-20 10:11:12.345] ", ""),
        ("[2026-05-20 10:11:12 TP3] ", "TP3"),
        ("[2026-05-20 10:11:12 DP1 TP3] ", "DP1 TP3"),
        ("[2026-05-20 10:11:12 DP0 PP1 TP2] ", "DP0 PP1 TP2"),
        ("[2026-05-20 10:11:12 DP1 TP3 EP3] ", "DP1 TP3 EP3"),
        ("[2026-05-20 10:11:12 PP0 ATTN_CP1 MOE_DP0 TP2 EP2] ", "PP0 ATTN_CP1 MOE_DP0 TP2 EP2"),
        ("[2026-05-20 10:11:12.345 TP10] ", "TP10"),
        ("[TP0] ", "TP0"),
        ("(SGLangEngine pid=123, ip=10.0.0.7) [2026-05-20 10:11:12 TP1] ", "TP1"),
        ("\x1b[36m(Worker pid=123)\x1b[0m [2026-05-20 10:11:12 TP1] ", "TP1"),
        ("sglang-1  | [2026-05-20 10:11:12 TP1] ", "TP1"),
        ("2026-05-20T10:11:12.123456789Z stdout F [2026-05-20 10:11:12 TP1] ", "TP1"),
        ("2026-05-20T10:11:12.123456789Z [2026-05-20 10:11:12 TP1] ", "TP1"),
        ("May 20 10:11:12 host-7 sglang[4242]: [2026-05-20 10:11:12 TP1] ", "TP1"),
        ("[pod/sglang-0/server] [2026-05-20 10:11:12 TP1] ", "TP1"),
        ("3: [2026-05-20 10:11:12 TP1] ", "TP1"),
        ('{"log":"[2026-05-20 10:11:12 TP1] ', "TP1"),
        ("\x1b[1;32m[2026-05-20 10:11:12 TP1]\x1b[0m ", "TP1"),
        (
            (
                "Capturing batches (bs=1 avail_mem=65.94 GB): 100%|██████| 1/1 [00:00<00:00,  2.44it/s]"
                "[2026-05-20 10:11:12 TP1] "
            ),
            "TP1",
        ),
        ("Loading: 100%|██████| 1/1 [00:00<00:00]\r[2026-05-20 10:11:12 TP1] ", "TP1"),
        ("\x1b[2K\x1b[1A\r[2026-05-20 10:11:12 TP1] ", "TP1"),
        ("sglang-1  | ", ""),
        ("2026-05-20T10:11:12.123456789Z stderr F ", ""),
        ("(Worker pid=123) ", ""),
        ("    ", ""),
        ("> ", ""),
        ("INFO:sglang.srt.mem_cache.memory_pool:", ""),
        ("Loading: 100%|██████| 1/1 [00:00<00:00]\r", ""),
    ],
)
def test_prefix(prefix: str, rank: str) -> None:
    log = logs.read([prefix + STATE, prefix + KV, prefix + END])
    assert pools(log) == [(rank, "target", 24), (rank, "target", 87061)]
    assert [end.available for end in log.pool_ends] == [gib(62.47)]
    assert [pool.line for pool in log.kv_pools] == [2]
    assert log.unread == ()


@pytest.mark.parametrize(
    "prefix",
    [
        "sglang-1  | ",
        "2026-05-20T10:11:12.123456789Z stderr F ",
        "May 20 10:11:12 host-7 sglang[4242]: ",
        "(Worker pid=123) ",
        "[rank0]: ",
        "[rank3]:",
        "2: ",
        "",
    ],
)
def test_traceback_behind_a_prefix(prefix: str) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3/site-packages/sglang/srt/mem_cache/memory_pool.py", line 12, in __init__',
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            "Current value: mem_fraction_static=0.508124"
        ),
    ]
    (failure,) = logs.read([prefix + line for line in lines]).failures
    assert (failure.kind, failure.phase, failure.line) == ("not_enough_memory", "pools", 3)
    assert failure.values["mem_fraction_static"] == 0.508124


@pytest.mark.parametrize("prefix", ["", "sglang-1  | ", "2026-05-20T10:11:12.12345678Z stdout F "])
def test_batch_lines_behind_a_prefix(prefix: str) -> None:
    line = "[2026-05-20 10:11:12.250 DP0 TP0] " + DECODE.format(running=3, queued=2)
    log = logs.read([prefix + line])
    assert (log.decode["running_requests"], log.decode["rank"]) == ([3], ["DP0 TP0"])
    assert log.decode["time"] == ["2026-05-20 10:11:12.250"]


def test_json_of_docker() -> None:
    line = "[2026-05-20 10:11:12] " + DECODE.format(running=3, queued=2)
    tail = '\\n","stream":"stderr","time":"2026-05-20T10:11:12.1Z"}'
    log = logs.read(['{"log":"' + text + tail for text in (line, "[2026-05-20 10:11:13] " + KV, line)])
    assert log.decode["queued_requests"] == [2, 2]
    assert pools(log) == [("", "target", 87061)]
    assert log.unread == ()


def test_two_processes_on_one_physical_line() -> None:
    log = logs.read([f"[2026-05-20 10:11:12 TP0] {KV}[2026-05-20 10:11:12 TP1] {END}"])
    assert pools(log) == [("TP0", "target", 87061)]
    assert [(end.rank, end.available) for end in log.pool_ends] == [("TP1", gib(62.47))]


def test_a_prompt_that_quotes_a_log_is_no_log() -> None:
    log = logs.read(
        [
            "[2026-05-20 10:11:12] Receive: obj=GenerateReqInput(text='why? [2026-01-01 00:00:00] " + KV + "')",
            "[2026-05-20 10:11:12] Finish: obj=…, out={'text': '[2026-01-01 00:00:00 TP0] " + STATE + "'}",
        ]
    )
    assert pools(log) == []


# ── cut, wrapped, mangled ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [200, 120, 100, 80, 72, 61, 50])
@pytest.mark.parametrize("trim", [False, True])
def test_lines_broken_by_a_terminal(width: int, trim: bool) -> None:
    """Copied out of a terminal, a long line is several: broken anywhere, with or without the space at the break."""
    text = []
    for line in (f"[2026-05-20 10:11:12 TP0] {STATE}", f"[2026-05-20 10:11:12 TP0] {KV}"):
        pieces = [line[at : at + width] for at in range(0, len(line), width)]
        text += [piece.rstrip() for piece in pieces] if trim else pieces
    log = logs.read([*text, f"[2026-05-20 10:11:12 TP0] {END}"])
    assert [(p.slots, p.ssm, p.scratch_ssm, p.scratch_conv) for p in log.state_pools] == [
        (24, gib(3.52), gib(11.25), gib(0.22))
    ]
    assert [(p.tokens, p.k, p.v) for p in log.kv_pools] == [(87061, gib(2.66), gib(2.66))]
    assert log.unread == ()


def test_lines_wrapped_by_hand() -> None:
    log = logs.read(
        [
            "Mamba Cache is allocated. max_mamba_cache_size: 48, conv_state size: 0.10GB,",
            "  ssm_state size: 2.58GB intermediate_ssm_state_cache size: 1.05GB",
            "  intermediate_conv_window_cache size: 0.02GB",
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 484032,",
            "    K size: 2.77 GB, V size: 2.77 GB",
            "max_total_num_tokens=484032, chunked_prefill_size=4096,",
            "max_prefill_tokens=16384, max_running_requests=6,",
            "context_len=262144, available_gpu_mem=19.86 GB",
        ]
    )
    assert [(p.slots, p.scratch_ssm, p.scratch_conv) for p in log.state_pools] == [(48, gib(1.05), gib(0.02))]
    assert [(p.tokens, p.v, p.line) for p in log.kv_pools] == [(484032, gib(2.77), 4)]
    assert [(r.running_requests, r.available) for r in log.resolved] == [(6, gib(19.86))]
    assert log.unread == ()


def test_the_scratch_of_another_line_is_not_joined() -> None:
    short = "Mamba Cache is allocated. max_mamba_cache_size: 24, conv_state size: 0.07GB, ssm_state size: 3.52GB "
    log = logs.read([f"[2026-05-20 10:11:12 TP0] {short}", f"[2026-05-20 10:11:12 TP1] {STATE}"])
    assert [(p.rank, p.scratch_ssm) for p in log.state_pools] == [("TP0", None), ("TP1", gib(11.25))]


@pytest.mark.parametrize("cut", range(len("KV Cache is allocated."), len(KV) - 1, 5))
def test_a_cut_line_is_unread_and_never_gives_part_of_a_number(cut: int) -> None:
    log = logs.read([f"[2026-05-20 10:11:12 TP0] {KV[:cut]}"])
    assert [line.text for line in log.unread] == [f"[2026-05-20 10:11:12 TP0] {KV[:cut]}"]
    assert {pool.tokens for pool in log.kv_pools} <= {87061}
    assert {pool.k for pool in log.kv_pools} <= {None, gib(2.66)}


@pytest.mark.parametrize(
    "line",
    [
        "Mamba Cache is allocated. max_mamba_cache_size: many",
        "KV Cache was allocated, all is well",
        "KV Cache is allocated. dtype: torch.bfloat16, #pages: 87061",
        "Load weight finished",
        "Memory pool begin. avail mem=1.00 GB",
        "max_total_num_tokens=lots",
        "Capture target verify CUDA graph start",
        "Decode batch, running 3 requests",
        "Prefill batch, #tokens in: 3",
    ],
)
def test_what_looks_like_ours_and_is_not_is_reported(line: str) -> None:
    log = logs.read(["[2026-05-20 10:11:12 TP0] nothing", f"[2026-05-20 10:11:13 TP0] {line}"])
    assert [(entry.line, entry.text) for entry in log.unread] == [(2, f"[2026-05-20 10:11:13 TP0] {line}")]
    assert log.seen["unread"] == 1


@pytest.mark.parametrize(
    "line",
    [
        "Capturing batches (bs=4 avail_mem=61.90 GB):   0%|          | 0/4",
        "The KV cache is large enough",
        "Loading weights took 1.21 seconds",
        "Decode 0. Batch size: 4, latency: 0.17757 s, throughput:     22.53 token/s",
        "Some requests fail to receive KV Cache transfer done signal after bootstrapping.",
    ],
)
def test_what_only_sounds_like_ours_is_not_reported(line: str) -> None:
    assert logs.read([f"[2026-05-20 10:11:12 TP0] {line}"]).unread == ()


def same(log: ServerLog) -> tuple[object, ...]:
    return (
        log.weights, log.state_pools, log.kv_pools, log.pool_ends, log.graphs, log.resolved, log.failures,
        log.decode, log.prefill, log.ready_line, log.lines_total, log.version_range,
    )  # fmt: skip


@pytest.mark.parametrize("how", ["crlf", "nul", "colour", "latin", "bom", "utf-16", "mixed"])
def test_the_same_log_in_other_clothes(how: str) -> None:
    plain = RECORDING.read_bytes()
    *lines, nothing = plain.split(b"\n")
    assert nothing == b""
    dressed = {
        "crlf": b"\r\n".join(lines),
        "nul": b"\n".join(b"\0".join((line[:9], line[9:])) + b"\0" for line in lines),
        "colour": b"\n".join(b"\x1b[36m" + line[:27] + b"\x1b[0m" + line[27:] + b"\x1b[K" for line in lines),
        "latin": b"\n".join(line + b" \xe9\xff" if line.startswith(b"[trans") else line for line in lines),
        "bom": b"\xef\xbb\xbf" + plain,
        "utf-16": plain.decode().encode("utf-16"),
        "mixed": b"\r\n".join(b"\x1b[1;31m" + line.replace(b" ", b" \0") + b"\x1b[m" for line in lines),
    }[how]
    if how in ("crlf", "nul", "colour", "latin", "mixed"):
        dressed += b"\r\n" if how == "crlf" else b"\n"
    assert same(logs.read(io.BytesIO(dressed))) == same(logs.read(RECORDING))


@pytest.mark.parametrize("name", ["tp2_dflash_r8", "nextn_r4_full", "oom_r8", "0512_dflash_r4"])
def test_other_ways_in(name: str, tmp_path: Path) -> None:
    path = HERE / "records" / name / "server.log"
    data = path.read_bytes()
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(data))
    want = same(logs.read(path))
    assert same(logs.read(str(path))) == want
    assert same(logs.read(packed)) == want
    assert same(logs.read(io.BytesIO(data))) == want
    assert same(logs.read(data.decode().split("\n")[:-1])) == want
    assert same(logs.read(data.splitlines(keepends=True) if b"\r" not in data else data.split(b"\n")[:-1])) == want
    assert same(logs.read(OneByteMore(data))) == want


class OneByteMore:
    """A stream that gives odd amounts: every boundary between chunks falls somewhere else."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)
        self._size = 0

    def read(self, size: int = -1) -> bytes:
        self._size = (self._size + 37) % 1013 + 1
        return self._data.read(self._size)


def test_a_compressed_log_that_was_cut_off_gives_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "server.log.gz"
    packed = gzip.compress(RECORDING.read_bytes())
    path.write_bytes(packed[: len(packed) // 2])
    log = logs.read(path)
    assert log.lines_total >= 5
    assert (log.server_args or {})["model_path"] == "/srv/sgl/models/qwen36-27b"


def test_chunk_boundaries_do_not_matter() -> None:
    """A pool line, wrapped, at every offset around a boundary between two chunks."""
    wrapped = f"\n[2026-05-20 10:11:12 TP0] {KV[:60]}\n{KV[60:]}\n".encode()
    for shift in range(-140, 20, 7):
        filler = (b"x" * 99 + b"\n") * (CHUNK_BYTES // 100 + 2)
        data = filler[: CHUNK_BYTES + shift] + wrapped + filler
        log = logs.read(io.BytesIO(data))
        assert [pool.tokens for pool in log.kv_pools] == [87061], shift
        assert log.unread == ()


def test_every_line_is_in_exactly_one_block() -> None:
    data = b"".join(b"%d\n" % number for number in range(200_000))
    seen = []
    for block in blocks(io.BytesIO(data)):
        part = block.cleaned(0, block.limit)
        for index, line in enumerate(part.text[: part.limit].split(b"\n")):
            if line:
                seen.append((part.lines_before + index, int(line)))
    assert seen == [(number + 1, number) for number in range(200_000)]


# ── order, ranks, roles ──────────────────────────────────────────────────────────────────────────────────────────────


def test_ranks_mixed_in_any_order() -> None:
    """Lines of one rank keep their order, ranks are interleaved at random: the roles must come out the same."""
    per_rank = {
        rank: [
            "Load weight begin. avail mem=138.05 GB",
            "Load weight end. elapsed=0.37 s, type=Qwen3_5ForConditionalGeneration, avail mem=125.00 GB, mem usage=13.05 GB.",
            STATE,
            KV,
            END,
            "Load weight begin. avail mem=75.43 GB",
            "Load weight end. elapsed=0.02 s, type=DFlashDraftModel, avail mem=74.30 GB, mem usage=1.13 GB.",
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 87061, K size: 0.83 GB, V size: 0.83 GB",
            "Memory pool end. avail mem=65.94 GB",
        ]
        for rank in ("TP0", "TP1", "TP2", "TP3")
    }
    shuffled = random.Random(7)
    for _ in range(20):
        queues = {rank: list(lines) for rank, lines in per_rank.items()}
        text = []
        while any(queues.values()):
            rank = shuffled.choice([rank for rank, lines in queues.items() if lines])
            text.append(f"[2026-05-20 10:11:12 {rank}] {queues[rank].pop(0)}")
        log = logs.read(text)
        for rank in per_rank:
            assert [(w.role, w.used) for w in log.weights if w.rank == rank] == [
                ("target", gib(13.05)),
                ("draft", gib(1.13)),
            ]
            assert [(p.role, p.k) for p in log.kv_pools if p.rank == rank] == [
                ("target", gib(2.66)),
                ("draft", gib(0.83)),
            ]
            assert [(e.role, e.available) for e in log.pool_ends if e.rank == rank] == [
                ("target", gib(62.47)),
                ("draft", gib(65.94)),
            ]


def test_the_summary_may_come_before_the_pools() -> None:
    log = logs.read(
        [
            (
                "max_total_num_tokens=87061, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4, "
                "context_len=262144, available_gpu_mem=17.40 GB"
            ),
            END,
            KV,
            STATE,
        ]
    )
    assert pools(log) == [("", "target", 24), ("", "target", 87061)]
    assert log.resolved[0].running_requests == 4


def test_a_draft_of_an_ordinary_class_is_the_second_to_load() -> None:
    """STANDALONE speculation: the draft is a small model of the target's own kind."""
    load = "Load weight end. elapsed=1.00 s, type=Qwen3ForCausalLM, avail mem={} GB, mem usage={} GB."
    log = logs.read([load.format("43.00", "51.00"), load.format("42.00", "1.00"), STATE, KV, END, KV, END])
    assert [load.role for load in log.weights] == ["target", "draft"]
    assert [pool.role for pool in log.kv_pools] == ["target", "draft"]


@pytest.mark.parametrize(
    "model_class",
    ["DFlashDraftModel", "LlamaForCausalLMEagle3", "Qwen3_5ForCausalLMMTP", "DeepseekV3ForCausalLMNextN", "MiMoMTP",
     "Qwen3DSparkModel", "Eagle3DeepseekV2ForCausalLM", "Gemma4AssistantForCausalLM"],
)  # fmt: skip
def test_a_draft_is_known_by_its_class_when_the_target_is_missing(model_class: str) -> None:
    log = logs.read([f"Load weight end. elapsed=1.00 s, type={model_class}, avail mem=4.00 GB, mem usage=1.00 GB."])
    assert [load.role for load in log.weights] == ["draft"]


def test_up_to_0_5_13_the_draft_captures_after_it_has_loaded() -> None:
    capture = "Capture cuda graph end. Time elapsed: 1.00 s. mem usage={} GB. avail mem=60.00 GB."
    load = "Load weight end. elapsed=1.00 s, type={}, avail mem=43.00 GB, mem usage=1.00 GB."
    log = logs.read(
        [
            load.format("Qwen3_5ForConditionalGeneration"),
            capture.format("0.59"),
            load.format("DFlashDraftModel"),
            capture.format("0.12"),
        ]
    )
    assert [(g.role, g.kind, g.used) for g in log.graphs] == [
        ("target", "verify", gib(0.59)),
        ("draft", "verify", gib(0.12)),
    ]


# ── several starts ───────────────────────────────────────────────────────────────────────────────────────────────────

ARGS = "[2026-05-20 10:11:12] server_args=ServerArgs(model_path='/m', max_running_requests={})"
BEGIN = "[2026-05-20 10:11:12] Load weight begin. avail mem=94.00 GB"


def test_the_last_start_counts() -> None:
    crash = ["[2026-05-20 10:11:13] Scheduler hit an exception: Traceback (most recent call last):",
             "AssertionError: max_running_request is zero"]  # fmt: skip
    log = logs.read([ARGS.format(8), BEGIN, STATE, KV, *crash, ARGS.format(4), BEGIN, STATE, KV, END])
    assert log.seen["starts"] == 2
    # The second start has neither become ready nor failed: the crash is what the log has to say.
    assert [failure.kind for failure in log.failures] == ["zero_requests"]
    ready = "[2026-05-20 10:11:14] The server is fired up and ready to roll!"
    log = logs.read([ARGS.format(8), BEGIN, STATE, KV, *crash, ARGS.format(4), BEGIN, STATE, KV, END, ready])
    assert log.failures == ()
    assert (log.server_args or {})["max_running_requests"] == 4
    assert [(pool.role, pool.line) for pool in log.kv_pools] == [("target", 10)]
    assert (log.ready_line, log.server_args_line) == (12, 7)


def test_what_is_said_before_the_arguments_belongs_to_their_start() -> None:
    early = "[2026-05-20 10:11:12] Overlap scheduler is disabled when using DFLASH speculative decoding (spec v2 …)."
    ready = "[2026-05-20 10:11:14] The server is fired up and ready to roll!"
    log = logs.read([early, ARGS.format(8), BEGIN, ready, early, ARGS.format(4), BEGIN, ready])
    assert [(notice.kind, notice.line) for notice in log.notices] == [("overlap_disabled", 5)]


def test_nodes_that_print_their_arguments_before_any_loads_are_one_start() -> None:
    rank = "[2026-05-20 10:11:12 TP{}] Load weight begin. avail mem=94.00 GB"
    log = logs.read([ARGS.format(8), ARGS.format(8), ARGS.format(8), *(rank.format(n) for n in range(6))])
    assert sorted(log.memory_before) == ["TP0", "TP1", "TP2", "TP3", "TP4", "TP5"]


@pytest.mark.parametrize(
    ("nodes", "counts"),
    [
        (("node_rank=0", "node_rank=0"), 4),
        (("'node_rank': 0", "'node_rank': 1"), 8),
        (("my_node_rank=0, node_rank=0", "my_node_rank=1, node_rank=0"), 4),
    ],
)
def test_of_nodes_the_first_ones_arguments_count_of_attempts_the_last_ones(nodes: tuple[str, str], counts: int) -> None:
    """Before anything loads. An argument whose name ends alike is another."""
    texts = [
        ARGS.format(asked).replace("model_path='/m'", f"model_path='/m', {node}")
        for asked, node in zip((8, 4), nodes, strict=True)
    ]
    log = logs.read([*texts, BEGIN, STATE, KV])
    assert (log.server_args or {})["max_running_requests"] == counts


def test_a_container_that_restarts_for_ever() -> None:
    one = [
        ARGS.format(8),
        BEGIN,
        STATE,
        KV,
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "",
    ]
    log = logs.read(one * 5000)
    assert log.seen["starts"] == 5000
    assert len(log.state_pools) == 1
    assert [failure.line for failure in log.failures] == [29_999]
    assert log.lines_total == 30_000


def test_of_starts_for_ever_the_last_that_led_to_anything_counts() -> None:
    """Many starts fill a piece of what is read at once, and many pieces: nearly all are superseded unread."""
    refusal = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    one = [ARGS.format(8), BEGIN, STATE, KV, refusal, ""]
    cut_off = logs.read([*one * 5000, ARGS.format(4), BEGIN])
    assert cut_off.seen["starts"] == 5001
    assert [failure.line for failure in cut_off.failures] == [29_999]
    assert (cut_off.server_args or {})["max_running_requests"] == 8

    said, ready = (
        "[2026-05-20 10:11:12] " + "x" * 200,
        "[2026-05-20 10:11:14] The server is fired up and ready to roll!",
    )
    served = logs.read([*one * 5000, ARGS.format(4), BEGIN, *[said] * 5000, KV, ready])
    assert (served.ready_line, served.failures, served.seen["starts"]) == (35_004, (), 5001)
    assert (served.server_args or {})["max_running_requests"] == 4
    assert served.previous is not None
    assert [failure.line for failure in served.previous.failures] == [29_999]


# ── long and hostile ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_table_is_thinned_and_keeps_its_peaks() -> None:
    rows = batches.LIMIT * 3
    peak = rows - 12_345

    def lines() -> Iterator[str]:
        for number in range(1, rows + 1):
            running, queued = (77, 99) if number == peak else (number % 4, 0)
            yield "[2026-05-20 10:11:12] " + DECODE.format(running=running, queued=queued)

    log = logs.read(lines())
    table = log.decode
    assert log.seen["decode"] == rows
    assert batches.LIMIT // 2 <= len(table["line"]) <= batches.LIMIT + 4
    assert {len(column) for column in table.values()} == {len(table["line"])}
    assert table["line"] == sorted(table["line"])
    assert table["line"][0] == 1
    assert max(table["running_requests"]) == 77
    at = table["line"].index(peak)
    assert (table["running_requests"][at], table["queued_requests"][at]) == (77, 99)


def test_lines_of_several_shapes_stay_in_order() -> None:
    plain = "Decode batch, #running-req: {}, #token: 9, token usage: 0.10, cuda graph: True, gen throughput (token/s): 1.00, #queue-req: 0"
    text = []
    for number in range(40):
        text.append(
            "[2026-05-20 10:11:12 TP0] "
            + (DECODE.format(running=number, queued=0) if number % 3 else plain.format(number))
        )
    log = logs.read(text)
    assert log.decode["running_requests"] == list(range(40))
    assert log.decode["line"] == list(range(1, 41))
    assert [bool(slots) for slots in log.decode["state_slots_used"]] == [number % 3 > 0 for number in range(40)]


def test_what_is_kept_of_a_long_log_is_bounded() -> None:
    """20 MB with everything in it. (The benchmark of log reading measures the memory itself.)"""
    mix = [
        "[2026-05-20 10:11:12 TP0] " + DECODE.format(running=3, queued=0),
        "[2026-05-20 10:11:12 TP0] " + KV,
        "[2026-05-20 10:11:12 TP0] KV Cache is allocated. #pages: 3",
        (
            "[2026-05-20 10:11:12 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 1087, "
            "#new_token_ratio: 0.5990 -> 0.8990"
        ),
        '[2026-05-20 10:11:12] INFO:     127.0.0.1:41012 - "POST /generate HTTP/1.1" 200 OK',
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.45.",
        "",
    ]
    copies = 26_000
    log = logs.read(io.BytesIO(("\n".join(mix) + "\n").encode() * copies))
    assert log.lines_total == copies * 7
    assert log.seen["decode"] == copies
    assert len(log.decode["line"]) <= batches.LIMIT
    assert len(log.kv_pools) <= 4096
    assert len(log.unread) <= 400
    assert len([notice for notice in log.notices if notice.kind == "retracted"]) == 500
    assert len(log.failures) <= 4096
    assert len(log.evidence) <= batches.LIMIT + 5 * 4096


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 3_000_000,
        b"]" * 3_000_000,
        b"] KV Cache " * 300_000,
        b"[2026-05-20 10:11:12] Decode batch, " * 60_000,
        b"[2026-05-20 10:11:12] Decode batch, #running-req: 1, " * 60_000,
        b"Mamba Cache is allocated. " * 100_000,
        b"Mamba Cache is allocated.\n" * 100_000,
        b"x: " * 1_000_000,
        b"A" * 3_000_000 + b"Error",
        b"a." * 1_500_000 + b"Error: x",
        b"\x1b[" * 1_500_000,
        b"\x1b]" * 1_500_000,
        b"\r" * 3_000_000,
        b"\r\n" * 1_500_000,
        b"\0" * 3_000_000,
        b"Traceback (most recent call last):\n" * 80_000,
        b'  File "a", line 1, in b\n' * 100_000,
        b"ValueError: x\n" * 100_000,
        b"[2026-05-20 10:11:12] server_args=ServerArgs(" + b"a='" * 500_000,
        b"[2026-05-20 10:11:12] server_args=ServerArgs(" + b"(" * 1_000_000,
        b"[2026-05-20 10:11:12] server_args=ServerArgs(a=" + b"[" * 200_000 + b")",
        b"[2026-05-20 10:11:12] server_args={" * 60_000,
        b"Load weight end. elapsed=1 s, type=a, " + b"avail mem=" * 200_000,
        b"> " * 1_500_000,
        b"\n" * 3_000_000,
    ],
    ids=lambda text: repr(text[:40]),
)
def test_hostile_text_takes_no_longer_than_its_length_allows(text: bytes) -> None:
    """About 3 MB each, of one line or many; anything quadratic would run for hours (the suite's time-out tells)."""
    log = logs.read(io.BytesIO(text))
    if log.server_args is not None:
        assert isinstance(dict(log.server_args), dict)
    assert log.lines_total >= 1


REAL = RECORDING.read_bytes()


@given(st.binary(max_size=4000))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_a_log(data: bytes) -> None:
    log = logs.read(io.BytesIO(data))
    assert {len(column) for column in log.decode.values()} == {len(log.decode["line"])}
    assert isinstance(logs.recognised(log), bool)


@given(
    st.lists(
        st.tuples(st.integers(0, len(REAL) - 1), st.integers(0, 60), st.binary(max_size=30)), min_size=1, max_size=40
    )
)
@settings(max_examples=100, deadline=None)
def test_a_real_log_with_holes_and_rubbish_in_it_is_read(changes: list[tuple[int, int, bytes]]) -> None:
    data = bytearray(REAL)
    for at, length, inserted in changes:
        data[at : at + length] = inserted
    log = logs.read(io.BytesIO(bytes(data)))
    assert log.lines_total == bytes(data).rstrip(b"\n").count(b"\n") + 1 or data.endswith(b"\n\n")
    if log.server_args is not None:
        assert isinstance(dict(log.server_args), dict)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_lines_of_a_real_log_in_any_order_are_read(data: st.DataObject) -> None:
    lines = [line for line in REAL.split(b"\n") if b"server_args" not in line and re.search(b"mem|Cache|batch", line)]
    order = data.draw(st.permutations(range(len(lines))))
    log = logs.read([lines[at] for at in order])
    assert sorted(pool.tokens for pool in log.kv_pools) == [753626] * 4
    assert sorted(pool.slots for pool in log.state_pools) == [47, 47]
    assert {pool.rank for pool in log.kv_pools} == {"TP0", "TP1"}
    assert log.unread == ()


# ── not a log ────────────────────────────────────────────────────────────────────────────────────────────────────────

VLLM = """\
INFO 11-29 13:01:31 [gpu_model_runner.py:2653] Model loading took 51.0462 GiB and 20.118 seconds
INFO 11-29 13:01:51 [kv_cache_utils.py:1087] GPU KV cache size: 87,061 tokens
INFO 11-29 13:01:51 [kv_cache_utils.py:1091] Maximum concurrency for 32,768 tokens per request: 2.66x
INFO 11-29 13:02:10 [gpu_model_runner.py:3480] Graph capturing finished in 19 secs, took 1.18 GiB
INFO:     Application startup complete.
Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/vllm/v1/engine/core.py", line 842, in run_engine_core
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0 has a total capacity of 23.56 GiB of which
"""
LLAMA = """\
llama_kv_cache_unified: size = 3584.00 MiB (32768 cells,  28 layers,  1 seqs), K (f16): 1792.00 MiB, V (f16): 1792.00 MiB
llama_context: graph splits = 2
main: server is listening on http://127.0.0.1:8080 - starting the main loop
"""


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\n\n\n", VLLM.encode(), LLAMA.encode(), bytes(range(256)) * 4000, b"hello", b"\x1f\x8b" * 50]
)
def test_nothing_of_ours(data: bytes) -> None:
    log = logs.read(io.BytesIO(data))
    assert not logs.recognised(log)
    assert (log.weights, log.state_pools, log.kv_pools, log.graphs, log.resolved) == ((), (), (), (), ())
    assert log.decode["line"] == []


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        logs.read(tmp_path / "no.log")


def test_a_traceback_in_the_engines_own_code_is_ours() -> None:
    assert logs.recognised(logs.read(HERE / "records" / "nemo_nano_r32" / "server.log"))
