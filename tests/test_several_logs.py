"""One server's log in several files: ranks, nodes, rotated pieces. One timeline, each line with its file."""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path

import pytest

from specbench.diagnose.diagnosis import of_logs, of_paths
from specbench.diagnose.document import to_document
from specbench.engines.contract import ServerLog
from specbench.engines.sglang import logs
from specbench.errors import ConfigError, LogFormatError, RecordError
from specbench.paths import short_names

RECORDS = Path(__file__).parent / "records"
WHOLE = RECORDS / "tp2_dflash_r8" / "server.log"

STATE = (
    "Mamba Cache is allocated. max_mamba_cache_size: {slots}, conv_state size: 0.07GB, ssm_state size: 3.52GB "
    "intermediate_ssm_state_cache size: 11.25GB intermediate_conv_window_cache size: 0.22GB "
)
KV = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, K size: 2.66 GB, V size: 2.66 GB"


def by_rank(whole: Path = WHOLE) -> dict[str, bytes]:
    """A recording of two ranks as two files: what TP1 says, and everything else."""
    files: dict[str, list[bytes]] = {"node-a/server.log": [], "node-b/server.log": []}
    for line in whole.read_bytes().splitlines(keepends=True):
        files["node-b/server.log" if b" TP1]" in line[:40] else "node-a/server.log"].append(line)
    return {name: b"".join(lines) for name, lines in files.items()}


def read(files: dict[str, bytes]) -> ServerLog:
    return logs.read_several({name: io.BytesIO(data) for name, data in files.items()}, "both")


def figures(log: ServerLog) -> list[object]:
    """What does not depend on line numbers."""
    rows = [*log.weights, *log.state_pools, *log.kv_pools, *log.pool_ends, *log.graphs, *log.resolved]
    without_line = sorted(re.sub(r"\bline=\d+", "", repr(row)) for row in rows)
    tables = [{name: column for name, column in table.items() if name != "line"} for table in (log.decode, log.prefill)]
    return [without_line, tables, log.memory_before, log.server_args, log.version_range, log.lines_total]


def test_two_ranks_in_two_files_tell_what_one_file_tells() -> None:
    files, whole = by_rank(), logs.read(WHOLE)
    log = read(files)
    assert figures(log) == figures(whole)
    assert log.assumptions == ()
    for number, text in log.evidence.items():
        file, line = log.places[number]
        raw = files[file].split(b"\n")[line - 1].decode()
        assert text.rstrip("… ")[-40:] in raw
    assert {log.places[pool.line][0] for pool in log.kv_pools if pool.rank == "TP1"} == {"node-b/server.log"}


def test_the_order_of_files_does_not_matter() -> None:
    files = by_rank()
    one, other = (read(dict(order)) for order in (files.items(), reversed(files.items())))
    assert figures(one) == figures(other)
    assert (one.places, one.evidence) == (other.places, dict(other.evidence))


@pytest.mark.parametrize(
    ("names", "ranks", "assumed"),
    [
        (("rank0.log", "rank1.log"), ["TP0", "TP1"], "rank0.log, rank1.log: {}ranks TP0, TP1 (by the names)"),
        (("tp-10.out", "tp-2.out"), ["TP10", "TP2"], "tp-2.out, tp-10.out: {}ranks TP2, TP10 (by the names)"),
        (("left.log", "right.log"), ["left.log", "right.log"], "left.log, right.log: {}one rank per file"),
    ],
)  # fmt: skip
def test_ranks_without_a_name_are_not_one_rank_twice(names: tuple[str, str], ranks: list[str], assumed: str) -> None:
    text = [f"[2026-05-20 10:11:12] {STATE.format(slots=24)}", f"[2026-05-20 10:11:13] {KV}"]
    for order in itertools.permutations(names):
        tokens = {name: 87061 + names.index(name) for name in names}
        log = read({name: "\n".join(text).format(tokens=tokens[name]).encode() for name in order})
        assert [(pool.rank, pool.role) for pool in log.state_pools] in (
            [(rank, "target") for rank in ranks],
            [(rank, "target") for rank in reversed(ranks)],
        )
        assert {pool.rank: pool.tokens for pool in log.kv_pools} == dict(zip(ranks, tokens.values(), strict=True))
        assert log.assumptions == (assumed.format("each has pools of lines without a rank, taken as "),)


def test_the_same_prefix_in_two_files_is_two_ranks() -> None:
    line = f"[2026-05-20 10:11:12 TP0] {KV.format(tokens=87061)}\n".encode()
    log = read({"a.log": line, "b.log": line})
    assert [(pool.rank, pool.role) for pool in log.kv_pools] == [("a.log TP0", "target"), ("b.log TP0", "target")]


def test_a_rotated_log_is_one_rank() -> None:
    """The pools are in the older file, the batches in the newer: nothing is sized twice."""
    data = WHOLE.read_bytes()
    cut = data.index(b"\n", data.index(b"The server is fired up")) + 1
    log = read({"server.log.1": data[:cut], "server.log": data[cut:]})
    assert figures(log) == figures(logs.read(WHOLE))
    assert log.assumptions == ()


def test_a_failure_of_another_file_comes_when_it_came() -> None:
    """Rank 1 fails after rank 0 is ready, or (its clock says) before: it is no accident of the file's place."""
    ready = b"[2026-05-20 10:11:20 TP0] x\n[2026-05-20 10:11:20] The server is fired up and ready to roll!\n"
    for second, crashed in ((30, True), (10, False)):
        failed = (
            f"[2026-05-20 10:11:{second} TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
            '  File "/sglang/srt/managers/scheduler.py", line 1, in run\n'
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB.\n"
        ).encode()
        log = read({"rank1.log": failed, "rank0.log": ready})
        (failure,) = log.failures
        assert log.ready_line is not None
        assert (failure.line > log.ready_line) is crashed
        assert log.where(failure.line) == "line 3 of rank1.log"


def test_files_of_two_servers_are_doubted() -> None:
    one = WHOLE.read_bytes()
    log = read({"a.log": one, "b.log": one.replace(b"max_running_requests=8", b"max_running_requests=4")})
    assert any("a.log, b.log: each became ready" in said for said in log.assumptions)
    assert any("b.log: other server arguments than a.log (max_running_requests)" in said for said in log.assumptions)
    assert (log.server_args or {})["max_running_requests"] == 8


def test_files_of_two_servers_are_refused_not_mixed() -> None:
    """Both say that they are node 0, with other arguments: pools of one would be explained by flags of the other."""
    one, other = (RECORDS / name / "server.log" for name in ("oom_r8", "h200_story-8"))
    said = (
        r"\Aoom\.log, s8\.log: of two servers, or of two starts: their arguments differ \(disable_overlap_.+\)\.\nGive"
    )
    with pytest.raises(LogFormatError, match=said):
        of_logs({"s8.log": io.BytesIO(other.read_bytes()), "oom.log": io.BytesIO(one.read_bytes())})


ARGUMENTS = "[2026-05-20 10:11:{second}] server_args=ServerArgs(model_path='m', port={port}, node_rank={node})"


def started(*lines: str) -> ServerLog:
    return logs.read(io.BytesIO("\n".join((*lines, "")).encode()), "server.log")


def test_which_start_of_a_log_counts_is_said() -> None:
    """A crash loop, a container that restarts, a file that is appended to."""
    first, last = (ARGUMENTS.format(second=second, port=1, node=0) for second in (12, 40))
    failed = "[2026-05-20 10:11:13] Scheduler hit an exception: Traceback (most recent call last):\nValueError: x"
    said = "the log has {} server_args lines, of several starts: the one from line {} counts{}"
    assert started(first, failed).assumptions == ()
    assert started(first, failed, last, failed).assumptions == (said.format(2, 4, ""),)
    assert started(*[first, failed] * 10).assumptions == (said.format(10, 28, ""),)
    left_out = "; the last, from line 7, led to nothing and is left out"
    assert started(*[first, failed] * 2, last).assumptions == (said.format(3, 4, left_out),)


def test_of_one_node_the_last_arguments_count_and_of_several_the_first() -> None:
    """Somebody stopped a start at once and tried other flags; two nodes print theirs at one start."""
    first, again = (ARGUMENTS.format(second=12, port=port, node=0) for port in (1, 2))
    other = ARGUMENTS.format(second=12, port=2, node=1)
    log = started(first, again)
    assert (log.server_args or {})["port"] == 2
    (said,) = log.assumptions
    assert said.startswith("line 1 has other server arguments than line 2 (port): the latter count; if two servers")
    log = started(first, other)
    assert (log.server_args or {})["port"] == 1
    assert log.assumptions == ()
    assert started(first, first).assumptions == ()


def test_the_document_names_file_and_line() -> None:
    files = by_rank(RECORDS / "tp2_dflash_r32_full" / "server.log")
    document = to_document(of_logs({name: io.BytesIO(data) for name, data in files.items()}))
    cited = [line for finding in document["findings"] for line in finding["evidence"] if line["line"] is not None]
    assert cited
    for line in cited:
        assert line["text"].strip() in files[line["file"]].decode().split("\n")[line["line"] - 1]
    rows = [row for row in document["reconciliation"] if row["line"] is not None]
    assert {row["file"] for row in rows} <= set(files)
    assert rows


def test_paths(tmp_path: Path) -> None:
    for name, data in by_rank().items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    paths = [tmp_path / "node-b/server.log", tmp_path / "node-a/server.log"]
    found = of_paths(paths)
    served = re.fullmatch(r"decode line (\d+) of node-a/server.log", found.served_source or "")
    assert served
    line = paths[1].read_bytes().decode().split("\n")[int(served[1]) - 1]
    assert f"Decode batch, #running-req: {found.served}," in line
    assert found.name == "node-a/server.log + node-b/server.log"
    assert [pools.rank for pools in found.pools.ranks] == ["TP0", "TP0", "TP1", "TP1"]
    assert of_paths([paths[1], paths[1]]).name == "server.log"  # named twice, read once
    with pytest.raises(RecordError, match=r"a folder among several logs.*\n.*alone"):
        of_paths([paths[0], tmp_path])
    with pytest.raises(ConfigError, match=r"does not exist"):
        of_paths([paths[0], tmp_path / "no.log"])


def test_short_names() -> None:
    files = [Path("/x/a/server.log"), Path("/x/b/server.log"), Path("/x/b/other.log")]
    assert list(short_names(files).values()) == ["a/server.log", "b/server.log", "other.log"]
