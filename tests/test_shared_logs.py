"""One log that several servers wrote: who they are by what stands around the lines, and one of them diagnosed alone."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specbench import logsources
from specbench.diagnose.diagnosis import _of_file, of_log, of_path, of_paths
from specbench.diagnose.document import to_document
from specbench.diagnose.shared_log import again, of_shared
from specbench.diagnose.told import Told
from specbench.diagnose.types import Diagnosis
from specbench.engines.sglang import logs
from specbench.engines.sglang.logs import servers
from specbench.engines.sglang.logs.scan import Hit
from specbench.engines.sglang.logs.server_args import arguments_of
from specbench.engines.sglang.logs.servers import servers_in, told_apart
from specbench.errors import ConfigError, LogFormatError
from specbench.logsources import Sources, lines_by_source
from specbench.logtext import CHUNK_BYTES, LONGEST_LINE
from specbench.studies.opened import opened
from tests.command_line import specbench

RECORDS = Path(__file__).parent / "records"
TIME = "2026-05-20T10:11:12.123456789Z"


def log_of(name: str) -> list[str]:
    text = (RECORDS / name / "server.log").read_text(encoding="utf-8", errors="replace")
    return text.replace("\r", "").split("\n")[:-1][:100]  # as far as some decode lines


#: One that serves 8 of 8 (0.5.16), one that ran out of memory at its pools, one that was capped at 1 of 8.
SERVERS = {"sglang-1": log_of("nospec_r8"), "sglang-2": log_of("oom_r8"), "sglang-3": log_of("dflash_r8")}
NGINX = ['10.0.0.1 - - "GET /health HTTP/1.1" 200', "KV Cache is what we talk about"]

Wrapping = Callable[[str, str], str]


def compose(name: str, line: str) -> str:
    return f"{name}  | {line}"


def journal(name: str, line: str) -> str:
    return json.dumps({"MESSAGE": line, "_HOSTNAME": "host-7", "_SYSTEMD_UNIT": f"{name}.service"})


WRAPPINGS: dict[str, tuple[Wrapping, str]] = {
    "compose": (compose, "{}"),
    "compose in colours, with times": (lambda name, line: f"\x1b[36m{name}  |\x1b[0m {TIME} {line}", "{}"),
    "kubectl --prefix": (lambda name, line: f"[pod/{name}/server] {line}", "{}/server"),
    "ray": (lambda name, line: f"(SGLangEngine pid={name[-1]}) {line}", "SGLangEngine pid={0[7]}"),
    "journald": (lambda name, line: f"Nov 30 05:45:20 {name} sglang[4242]: {line}", "{} sglang"),
    "journald json": (journal, "host-7 {}.service"),
    "docker's journald driver": (
        lambda name, line: json.dumps({"CONTAINER_NAME": name, "_HOSTNAME": "host", "MESSAGE": line}),
        "{}",
    ),
    "a cloud's JSON": (
        lambda name, line: json.dumps({"resource": {"labels": {"pod_name": name}}, "textPayload": line}),
        "{}",
    ),
    "fluent-bit": (
        lambda name, line: json.dumps(
            {"log": line, "kubernetes": {"pod_name": name, "container_name": "server", "labels": {}}}
        ),
        "{}/server",
    ),
    "pm2": (lambda name, line: f"{name[-1]}|sglang  | {line}", "{0[7]}|sglang"),
    "ray in compose": (lambda name, line: f"all  | (Engine pid={name[-1]}) {line}", "all / Engine pid={0[7]}"),
}


def mixed(wrap: Wrapping, servers: dict[str, list[str]], beside: list[str] | None = None) -> list[str]:
    """A line of each in turn."""
    streams = servers | ({"nginx-9": beside} if beside else {})
    return [
        wrap(name, line)
        for row in itertools.zip_longest(*streams.values())
        for name, line in zip(streams, row, strict=True)
        if line is not None
    ]


def stream(lines: list[str]) -> io.BytesIO:
    return io.BytesIO("\n".join([*lines, ""]).encode())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shared") / "compose.log"
    path.write_bytes(stream(mixed(compose, SERVERS, NGINX)).getvalue())
    return path


@pytest.mark.parametrize("form", WRAPPINGS)
def test_each_server_reads_as_from_a_log_of_its_own(form: str) -> None:
    """To the last figure; and a line that is cited is the line of the whole log."""
    wrap, called = WRAPPINGS[form]
    lines = mixed(wrap, SERVERS, NGINX)
    whole = stream(lines)
    with told_apart(whole) as apart:
        assert apart.servers == tuple((called.format(name),) for name in SERVERS) and apart.sources is not None
        read = {name: logs.read(apart.sources.share({called.format(name)})) for name in SERVERS}
    for name, own in SERVERS.items():
        log, alone = read[name], logs.read(own)
        assert (log.weights, log.state_pools, log.kv_pools, log.graphs, log.resolved) == (
            *(alone.weights, alone.state_pools, alone.kv_pools, alone.graphs, alone.resolved),
        )
        assert (log.failures, log.ready_line, log.decode, log.lines_total) == (
            *(alone.failures, alone.ready_line, alone.decode, len(own)),
        )
        for number in (log.server_args_line, log.kv_pools[0].line):
            assert number is not None
            assert lines[(log.at(number, "").line or 0) - 1] == wrap(name, own[number - 1])


def test_no_figure_of_one_server_is_anothers(file: Path) -> None:
    """All of the diagnosis is that of the server's own log, but for the numbers of lines: those are the file's."""
    for name, own in SERVERS.items():
        found = to_document(of_path(file, told=Told(server=name)))
        alone = file.with_name(f"{name}.log")
        alone.write_text("\n".join([*own, ""]), encoding="utf-8")
        expected = to_document(of_path(alone))
        assert [one["name"] for one in found["servers"]] == list(SERVERS)
        for document in (found, expected):
            for key in ("name", "source", "marks", "servers", "report"):
                document.pop(key)
        assert _without_numbers(found) == _without_numbers(expected)


def _without_numbers(document: dict[str, Any]) -> str:
    text = json.dumps(document)
    return re.sub(r"lines? [\d,]+(?: and [\d,]+)?|\"(?:line|lines)\": (?:\[[^\]]*\]|\d+)", "line N", text)


def test_the_only_one_that_failed_is_diagnosed_and_the_others_are_named(file: Path) -> None:
    text = specbench("diagnose", file, columns=200).stdout
    assert text.startswith("refused  compose.log, sglang-2  sglang 0.5.16")
    assert (
        "sglang-2 alone: the only one that failed of 3 servers in this log (sglang-1 served, sglang-2 refused, "
        "sglang-3 capped); --server NAME for another" in text
    )
    assert "1. fatal: Out of GPU memory at the pools" in text
    assert opened(file, told={"server": "3"}).notes == (
        "sglang-3 alone, as asked; 3 servers wrote this log, beside it sglang-1, sglang-2",
    )


def test_of_a_stream_one_is_read_too(file: Path) -> None:
    """Packed, as it may come."""
    packed = gzip.compress(file.read_bytes())
    done = specbench("diagnose", "-", "--server", "sglang-3", stdin=packed, columns=200)
    assert done.stdout.startswith("capped  standard input, sglang-3  sglang 0.5.16")


def test_a_stream_that_names_one_server_is_read_from_its_beginning() -> None:
    """It was looked at for others."""
    data = stream(mixed(compose, {"sglang-2": SERVERS["sglang-2"]}, NGINX)).getvalue()
    done = specbench("diagnose", "-", stdin=data, columns=200)
    assert done.stdout.startswith("refused  standard input  sglang 0.5.16")
    assert "1. fatal: Out of GPU memory at the pools" in done.stdout


def test_without_a_failure_it_is_the_gravest_finding() -> None:
    """8 of 8 and 1 of 8: nobody failed, one was capped."""
    data = stream(mixed(compose, {name: SERVERS[name] for name in ("sglang-1", "sglang-3")})).getvalue()
    document = json.loads(specbench("diagnose", "-", "--json", stdin=data).stdout)
    assert document["servers"] == [
        {"name": "sglang-1", "outcome": "served", "finding": None},
        {"name": "sglang-3", "outcome": "capped", "finding": None},
    ]
    (mark,) = document["marks"]
    assert mark == (
        "sglang-3 alone: the one with the gravest finding of 2 servers in this log (sglang-1 served, sglang-3 capped); "
        "--server NAME for another"
    )


PROVOKED = Path(__file__).parent / "logs" / "sglang" / "provoked"


def both(first: str, second: str) -> tuple[str, list[dict[str, Any]]]:
    """The mark and the servers of a log that two provoked failures share."""
    texts = (PROVOKED / f"0.5.16-{name}.log" for name in (first, second))
    files = zip(("sglang-1", "sglang-2"), texts, strict=True)
    lines = [compose(name, line) for name, file in files for line in file.read_text(encoding="utf-8").splitlines()]
    document = to_document(one_of(lines))
    (mark,) = document["marks"]
    return mark, document["servers"]


def one_of(lines: list[str]) -> Diagnosis:
    text = io.BytesIO("\n".join(lines).encode())
    with told_apart(text) as apart:
        found = of_shared(apart, "both.log", None, lambda share, name: of_log(share, name=name))
    assert found is not None
    return found


def test_where_both_died_the_others_cause_is_told_and_why_one_is_graver() -> None:
    """A start that is refused loses all; what a hang costs is not known."""
    mark, servers = both("tp2-rank-stopped", "slots2")
    assert mark == (
        "sglang-2 alone: the gravest of the 2 that failed (its finding costs 100%, the others' less, or it is not "
        "known how much), of 2 servers in this log (sglang-1 crashed: A step hung (watchdog-timeout), sglang-2 "
        "refused); --server NAME for another"
    )
    assert servers == [
        {"name": "sglang-1", "outcome": "crashed", "finding": "watchdog-timeout"},
        {"name": "sglang-2", "outcome": "refused", "finding": "refused-state-pool"},
    ]


def test_of_two_that_are_equally_grave_it_is_the_first() -> None:
    mark, _ = both("tp2-rank-stopped", "tp2-card-missing")
    assert mark == (
        "sglang-1 alone: the first of the 2 that failed, none of which is graver, of 2 servers in this log (sglang-1 "
        "crashed, sglang-2 crashed: A GPU is not there (gpu-missing)); --server NAME for another"
    )


# ── one server in several sources ────────────────────────────────────────────────────────────────────────────────────


def nodes(name: str, **changed: object) -> Iterator[tuple[str, list[str]]]:
    """A recorded server of two GPUs as one of two nodes: TP1 is on the second, which prints its arguments, too."""
    whole = log_of("tp2_dflash_r8")
    arguments = next(line for line in whole if " server_args=" in line)
    for rank in (0, 1):
        text = arguments.replace("nnodes=1", "nnodes=2").replace("node_rank=0", f"node_rank={rank}")
        for key, value in changed.items():
            text = re.sub(rf"\b{key}=[^,]+", f"{key}={value!r}", text)
        rest = [line for line in whole if (" TP1]" in line[:40]) == bool(rank) and " server_args=" not in line]
        yield f"{name}-{rank}", [text, *rest]


def test_nodes_of_one_server_are_read_as_one() -> None:
    """Not split: what they say is put together as it always was."""
    whole = stream(mixed(compose, dict(nodes("node")), NGINX))
    assert servers_in(whole) == ()
    whole.seek(0)
    assert {pool.rank for pool in logs.read(whole).kv_pools} == {"TP0", "TP1"}


def test_two_servers_of_two_nodes_each() -> None:
    """By where their nodes meet; a node that calls the place otherwise belongs to whom a node is missing."""
    one, other = dict(nodes("a", dist_init_addr="a-0:5000")), dict(nodes("b", dist_init_addr="b-0:5000"))
    order = ("a-0", "b-1", "b-0", "a-1")
    streams = {name: (one | other)[name] for name in order}
    assert servers_in(stream(mixed(compose, streams))) == (("a-0", "a-1"), ("b-1", "b-0"))
    other["b-0"] = dict(nodes("b", dist_init_addr="0.0.0.0:5000"))["b-0"]
    streams = {name: (one | other)[name] for name in order}
    assert servers_in(stream(mixed(compose, streams))) == (("a-0", "a-1"), ("b-1", "b-0"))


@pytest.mark.parametrize("value", ["'two'", "[1]", "{}", "1e999", "-1"])
def test_arguments_that_are_no_numbers_are_no_nodes(value: str) -> None:
    """A log may say anything; what is not known to be a node is a server."""
    streams = {
        name: [re.sub(r"\b(nnodes|node_rank)=\d+", rf"\1={value}", line) for line in SERVERS[name]]
        for name in ("sglang-1", "sglang-3")
    }
    assert servers_in(stream(mixed(compose, streams))) == (("sglang-1",), ("sglang-3",))


def test_arguments_of_many_servers_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is compared with every other: 20 servers, 20 times and not 20 × 20."""
    asked: list[bytes] = []

    def counted(hit: Hit) -> dict[str, Any] | None:
        asked.append(hit.raw)
        return arguments_of(hit)

    monkeypatch.setattr(servers, "arguments_of", counted)
    streams = {f"s-{number}": SERVERS["sglang-1"][:20] for number in range(20)}
    assert len(servers_in(stream(mixed(compose, streams)))) == 20
    assert len(asked) == 20


def test_a_worker_without_arguments_belongs_to_the_server_whose_rank_it_is() -> None:
    """Ray's workers; and the same rank twice is two servers, also where both logs begin later."""
    whole = log_of("tp2_dflash_r8")
    by_rank = [[line for line in whole if f" TP{rank}]" in line[:40]] for rank in (0, 1)]
    main = [line for line in whole if " TP" not in line[:40]]
    workers = {"Engine-0": main, "Worker-1": by_rank[0], "Worker-2": by_rank[1]}
    assert servers_in(stream(mixed(compose, workers))) == ()
    tails = {"a": by_rank[0], "b": by_rank[0]}
    assert servers_in(stream(mixed(compose, tails))) == (("a",), ("b",))
    assert servers_in(stream(mixed(compose, {"a": SERVERS["sglang-1"], "b": by_rank[0]}))) == (("a",), ("b",))


def test_a_server_that_died_before_it_told_its_arguments_is_one() -> None:
    """A container whose torch does not load, beside one that serves; a web service that fails is none."""
    died = [
        "Traceback (most recent call last):",
        '  File "/sgl-workspace/sglang/python/sglang/launch_server.py", line 7, in <module>',
        "    from sglang.srt.server_args import prepare_server_args",
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
    ]
    web = ["Traceback (most recent call last):", '  File "/app/web.py", line 7, in <module>', "KeyError: 'x'"]
    whole = stream(mixed(compose, {"sglang-1": SERVERS["sglang-1"], "sglang-2": died, "web-1": web}))
    assert servers_in(whole) == (("sglang-1",), ("sglang-2",))


# ── what is refused, and what cannot be told ─────────────────────────────────────────────────────────────────────────


def test_what_is_asked_must_be_there(file: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"got 'sglang-7' \(text\): no such server in compose.log.\nIt has: sglang-1,"
    ):
        of_path(file, told=Told(server="sglang-7"))
    with pytest.raises(ConfigError, match=r"got 'sglang' \(text\): fits several servers"):
        of_path(file, told=Told(server="sglang"))
    with pytest.raises(ConfigError, match=r"server\.log is of one server, or does not name several"):
        of_path(RECORDS / "oom_r8" / "server.log", told=Told(server="sglang-1"))


def test_more_sources_than_are_told_apart_are_named_as_that(tmp_path: Path) -> None:
    """65 services: none is said to be the only one, and figures of all are called that."""
    own = log_of("oom_r8")
    many = tmp_path / "many.log"
    many.write_bytes(stream(mixed(compose, {f"s{number}": own[-12:] for number in range(65)})).getvalue())
    with pytest.raises(ConfigError) as refused:
        of_path(many, told=Told(server="s7"))
    assert str(refused.value) == (
        "--server: got 's7' (text), but more than 64 sources wrote many.log: no servers are told apart.\n"
        "Give the lines of that server as a file of their own."
    )
    assert of_path(many).marks[0] == (
        "more than 64 sources wrote this log: it is read as that of one server, whose figures these are only if they "
        "are its workers"
    )


class Counted(io.BytesIO):
    """A file that knows how many of its bytes were read."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def test_a_log_of_many_servers_is_read_once() -> None:
    """A block is read to see that several write it, then all of it, once (it was once for each server)."""
    whole = Counted("\n".join(mixed(compose, {f"s-{number}": log_of("oom_r8") * 5 for number in range(12)})).encode())
    size = len(whole.getvalue())
    assert size > 4 * CHUNK_BYTES
    found = _of_file(whole, "many.log", None)
    assert len(found.servers) == 12 and {server.outcome for server in found.servers} == {"refused"}
    assert size <= whole.taken <= size + 2 * CHUNK_BYTES


def test_lines_of_several_sources_come_in_the_order_of_the_whole() -> None:
    with Sources() as sources:
        for number, name in enumerate("abcab", start=1):
            sources.take(name, number, f"{name}{number}".encode())
        share = sources.share({"b", "a"})
        assert [line.strip() for line in share] == [b"a1", b"b2", b"a4", b"b5"]
        assert dict(share.places) == {1: (None, 1), 2: (None, 2), 3: (None, 4), 4: (None, 5)}
        assert list(share) == list(share)  # again and again


def test_names_that_are_shown_alike_are_not_one_server(tmp_path: Path) -> None:
    """Found by an attack: of two names that differ by a tab and a space the first, which had failed, was lost."""
    wrap = WRAPPINGS["docker's journald driver"][0]
    alike = tmp_path / "alike.log"
    alike.write_bytes(stream(mixed(wrap, {"a b": log_of("oom_r8"), "a\tb": log_of("nospec_r8")})).getvalue())
    found = of_path(alike)
    assert [(server.name, server.outcome) for server in found.servers] == [("a b", "refused"), ("a b'", "served")]
    assert found.outcome == "refused"
    assert of_path(alike, told=Told(server="a b'")).outcome == "served"


def test_a_shared_log_is_not_put_together_with_others(file: Path) -> None:
    """Nor is it the other server that `--against` names."""
    other = RECORDS / "dflash_r8" / "server.log"
    with pytest.raises(LogFormatError, match="3 servers wrote this log: sglang-1, sglang-2, sglang-3"):
        of_paths([file, other])
    with pytest.raises(LogFormatError, match="3 servers wrote this log"):
        opened(other, against=file)
    with pytest.raises(ConfigError, match="for 2 logs, which are read as those of one server"):
        of_paths([file, other], told=Told(server="sglang-1"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_temporary_directory_that_is_full_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logsources, "_KEPT_BYTES", 1)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "w+b"))  # noqa: PTH123, SIM115
    monkeypatch.setattr(tempfile, "tempdir", "/full")
    said = (
        "TMPDIR: lines of a log that names its sources cannot be kept in /full: No space left on device.\n"
        "Make room for as much as the unpacked log, or set TMPDIR to a directory that has it."
    )
    with pytest.raises(ConfigError) as caught:
        of_path(file)
    assert str(caught.value) == said
    with pytest.raises(ConfigError) as caught, again(io.BytesIO(file.read_bytes())):
        pass
    assert str(caught.value) == said


def test_lines_that_are_too_long_are_cut_and_counted_once() -> None:
    long = "x" * (3 * LONGEST_LINE)
    lines = [compose("a", "one"), compose("b", long), compose("a", "three")] * 2
    got = list(lines_by_source(stream([*[compose("a", "zero")] * 9, *lines])))
    assert [name for name, _ in got] == ["a"] * 9 + ["a", "b", "a"] * 2
    assert [line for name, line in got if name == "a"] == [b"zero"] * 9 + [b"one", b"three"] * 2
    assert all(len(line) < 2 * LONGEST_LINE for _, line in got)
