"""What stands around the lines of a log, by form: containers, journals, launchers, mail. The log reads the same."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from specbench.engines.contract import ServerLog
from specbench.engines.sglang import logs
from specbench.logtext import CHUNK_BYTES, blocks
from specbench.logwraps import unwrapped, wraps_of

RECORDS = Path(__file__).parent / "records"
TIME = "2026-05-20T10:11:12.123456789Z"

#: A start that died, with an exception of several lines: what continues a message stands behind the wrap, too.
START = (RECORDS / "oom_r8" / "server.log").read_text(encoding="utf-8").replace("\r", "").split("\n")[:-1]


def same(log: ServerLog) -> tuple[object, ...]:
    return (
        log.weights, log.state_pools, log.kv_pools, log.pool_ends, log.graphs, log.resolved, log.failures,
        log.decode, log.ready_line, log.lines_total, log.version_range, dict(log.server_args or {}),
    )  # fmt: skip


WANTED = same(logs.read(START))


def docker(line: str, newline: str = "\n") -> str:
    return json.dumps({"log": line + newline, "stream": "stderr", "time": TIME}, separators=(",", ":"))


def journal(line: str) -> str:
    fields = {"__CURSOR": "s=1;i=2", "_PID": "4242", "PRIORITY": "6", "MESSAGE": line, "_HOSTNAME": "host-7"}
    return json.dumps(fields, ensure_ascii=False)


def journal_of_bytes(line: str) -> str:
    """journald's way with control characters: here the colours around a time."""
    return json.dumps({"MESSAGE": list(f"\x1b[32m{line[:21]}\x1b[0m{line[21:]}".encode()), "_PID": "4242"})


PREFIXES = {
    "docker -t": f"{TIME} ",
    "kubernetes": f"{TIME} stdout F ",
    "kubectl --prefix": "[pod/sglang-0/server] ",
    "kubectl --prefix --timestamps": f"[pod/sglang-0/server] {TIME} ",
    "compose": "sglang-1  | ",
    "compose with colours": "\x1b[36msglang-1  |\x1b[0m ",
    "compose -t": f"sglang-1  | {TIME} ",
    "journald short": "Nov 30 05:45:20 host-7 sglang[4242]: ",
    "journald short, one digit": "May  3 05:45:20 host-7 python3[42]: ",
    "journald short-precise": "Nov 30 05:45:20.123456 host-7 sglang[4242]: ",
    "journald short-iso": "2026-11-30T05:45:20+0000 host-7 sglang[4242]: ",
    "journald short-iso-precise": "2026-11-30T05:45:20.123456+00:00 host-7 sglang[4242]: ",
    "journald short-full": "Mon 2026-11-30 05:45:20 UTC host-7 sglang[4242]: ",
    "journald short-unix": "1764481520.123456 host-7 sglang[4242]: ",
    "journald short-monotonic": "[   12.345678] host-7 sglang[4242]: ",
    "journald verbose": "    MESSAGE=",
    "syslog": f"<30>1 {TIME} host-7 sglang 4242 - - ",
    "ray": "(SGLangEngine pid=123) ",
    "ray on a node": "(RayTrainWorker pid=123, ip=10.0.0.7) ",
    "ray with colours": "\x1b[36m(SGLangEngine pid=123)\x1b[0m ",
    "ray in docker -t": f"{TIME} \x1b[36m(SGLangEngine pid=123)\x1b[0m ",
    "foreman": "05:45:20 web.1   | ",
    "pm2": "0|sglang  | ",
    "torchrun": "[default0]:",
    "gitlab": "2026-11-30T05:45:20.123456Z 01O ",
    "srun --label": "0: ",
    "grep -n": "server.log:12:",
    "grep -n of one file": "12:",
    "torch's exception hook": "[rank0]: ",
    "cat -n": "    12\t",
    "a quoted mail": "> ",
    "a mail quoted twice": "> > ",
}
FORMS: dict[str, Callable[[str], str]] = {
    **{name: (lambda line, before=before: before + line) for name, before in PREFIXES.items()},  # type: ignore[misc]
    "docker json-file": docker,
    "journald json": journal,
    "journald json, control characters": journal_of_bytes,
    "a cloud's JSON": lambda line: json.dumps({"severity": "INFO", "textPayload": line}),
    "ray in docker json-file": lambda line: docker(f"\x1b[36m(SGLangEngine pid=123)\x1b[0m {line}"),
    "kubernetes in docker json-file": lambda line: docker(f"{TIME} stderr F {line}"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_wrapped_log_reads_the_same(form: str) -> None:
    wrap = FORMS[form]
    log = logs.read([wrap(line) for line in START])
    assert same(log) == WANTED
    assert log.failures


@pytest.mark.parametrize("form", ["docker json-file", "kubernetes"])
def test_a_line_that_the_runtime_broke_is_whole(form: str) -> None:
    """Container runtimes break lines of 16 KiB; here at 4,096 characters, of which the arguments have more."""
    lines = []
    for line in START:
        pieces = [line[at : at + 4096] for at in range(0, max(len(line), 1), 4096)]
        if form == "kubernetes":
            lines += [f"{TIME} stdout {'F' if piece is pieces[-1] else 'P'} {piece}" for piece in pieces]
        else:
            lines += [docker(piece, "\n" if piece is pieces[-1] else "") for piece in pieces]
    log = logs.read(lines)
    assert len(lines) > len(START)
    assert dict(log.server_args or {}) == WANTED[-1]
    assert [pool.slots for pool in log.state_pools] == [pool.slots for pool in logs.read(START).state_pools]


def test_a_paste_between_prose_and_fences() -> None:
    quoted = [f"> {line}" for line in START]
    log = logs.read(["Hello,", "", "my server dies:", "", "```text", *quoted, "```", "", "Any idea? -- | thanks"])
    first = logs.read(START)
    assert [pool.line for pool in log.state_pools] == [pool.line + 5 for pool in first.state_pools]
    assert [failure.text for failure in log.failures] == [failure.text for failure in first.failures]


def test_a_message_of_several_lines_stays_one_line() -> None:
    kv = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 87061, K size: 2.66 GB, V size: 2.66 GB"
    log = logs.read([journal("first\nsecond"), journal(f"something\n[2026-05-20 10:11:12 TP1] {kv}")])
    assert [(pool.rank, pool.line) for pool in log.kv_pools] == [("TP1", 2)]


@pytest.mark.parametrize(
    "line",
    [
        b'{"log":"cut off in the middle',
        b'{"log":"\\ud800"}',
        b'{"log":{"a":1}}',
        b'{"MESSAGE":[1,2,999]}',
        b'{"MESSAGE":["a"]}',
        b'{"message":null}',
        b"{" * 5000,
        b'{"log":' + b"[" * 100_000,
        b"2026-05-20T10:11:12Z",
        b"> ",
        b"a" * 80 + b" " * 80 + b"|",
    ],
)
def test_broken_wraps_never_break_the_count_of_lines(line: bytes) -> None:
    text = (line + b"\n") * 5 + b"\n\n" + line
    assert unwrapped(text, wraps_of(text)).count(b"\n") == text.count(b"\n")


def test_what_is_not_wrapped_is_given_as_it_is() -> None:
    for name in ("tp2_dflash_r8", "oom_r8", "0512_dflash_r8_exact"):
        data = (RECORDS / name / "server.log").read_bytes()
        assert wraps_of(data[: 1 << 16]) == ()


def test_wraps_are_taken_off_across_chunks() -> None:
    """Every line loses its wrap, wherever the file is cut into chunks."""
    data = b"".join(b"sglang-1  | line %d\n" % number for number in range(CHUNK_BYTES // 8))
    (seen,) = {line for block in blocks(io.BytesIO(data)) for line in block.text.split(b"\n") if b"|" in line} or {b""}
    assert seen == b""


# ── packed ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def streamed(data: bytes) -> bytes:
    """As `zstd < log` writes it: the size is not known when it begins."""
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


PLAIN = "\n".join([*START, ""]).encode()
SKIPPED = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"  # what pzstd writes first


@pytest.mark.parametrize(
    "packed",
    [
        zstd(PLAIN),
        streamed(PLAIN),
        zstd(PLAIN[:7000]) + zstd(PLAIN[7000:]),
        SKIPPED + zstd(PLAIN),
        gzip.compress(PLAIN[:7000]) + gzip.compress(PLAIN[7000:]),
    ],
    ids=["zstd", "zstd of a pipe", "two frames", "pzstd", "two members of gzip"],
)
def test_a_packed_log_reads_the_same(packed: bytes, tmp_path: Path) -> None:
    file = tmp_path / "server.log"  # told by its first bytes, not by its name
    file.write_bytes(packed)
    assert same(logs.read(file)) == WANTED
    assert same(logs.read(io.BytesIO(packed))) == WANTED


def test_of_a_packed_log_that_was_cut_off_counts_what_is_there() -> None:
    frames = [zstd(PLAIN[at : at + 2000]) for at in range(0, len(PLAIN), 2000)]
    for broken in (b"".join(frames)[: -len(frames[-1]) // 2], b"".join(frames[:-1]) + b"no frame at all"):
        log = logs.read(io.BytesIO(broken))
        assert len(START) - 30 <= log.lines_total < len(START)
        assert log.server_args
