"""What of an attached server's log is recorded: its last start and what was added, whatever kind of file it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specbench.errors import ConfigError
from specbench.lifecycle import attached_log as module
from specbench.lifecycle.attached_log import AttachedLog
from specbench.records.redaction import REMOVED, Redaction

ARGUMENTS = b"[2026-01-01 00:00:00] server_args=ServerArgs(model_path='m')\n"
POOL = b"[2026-01-01 00:00:01] KV Cache is allocated. #tokens: 1\n"
READY = b"[2026-01-01 00:00:02] The server is fired up and ready to roll!\n"
START = ARGUMENTS + POOL + READY


def decode(number: int) -> bytes:
    return b"[2026-01-01 00:00:03] Decode batch. #running-req: %d\n" % number


TRAFFIC = b"".join(map(decode, range(5)))


def recorded(tmp_path: Path, before: bytes, added: bytes = b"", key: str | None = None) -> tuple[bytes, list[str]]:
    log, notes = tmp_path / "theirs.log", list[str]()
    log.write_bytes(before)
    seen = AttachedLog(str(log))
    with log.open("ab") as more:
        more.write(added)
    seen.write(tmp_path / "server.log", Redaction(key), notes)
    return (tmp_path / "server.log").read_bytes(), notes


def test_the_start_and_what_was_added(tmp_path: Path) -> None:
    text, notes = recorded(tmp_path, b"early\n" + START + TRAFFIC, decode(7))
    assert text == b"early\n" + START + decode(7)
    assert notes == ["of the attached server's log 5 lines from before this run are left out"]
    assert recorded(tmp_path, START) == (START, [])


def test_the_last_start_of_several_is_the_one_that_runs(tmp_path: Path) -> None:
    two = START + TRAFFIC + START
    assert recorded(tmp_path, two + TRAFFIC, decode(7))[0] == two + decode(7)
    assert recorded(tmp_path, START + ARGUMENTS + POOL)[0] == START  # one that has not become ready
    nodes = ARGUMENTS + ARGUMENTS + POOL + READY
    assert recorded(tmp_path, nodes + TRAFFIC)[0] == nodes


def test_a_long_log_keeps_the_last_start_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COPIED_BYTES", 400)
    text, notes = recorded(tmp_path, START + TRAFFIC * 4 + START + TRAFFIC, TRAFFIC * 4)
    assert text.startswith(START + decode(0)) and text.endswith(decode(4))
    assert len(text) < len(START) + 600
    assert notes == [
        "of the attached server's log 5 lines from before this run are left out",
        "0 MB of the attached server's log are not in the record",
    ]


@pytest.mark.parametrize("piece", [16, 70, 1000])
def test_markers_and_keys_are_found_wherever_pieces_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    from specbench.engines.sglang.logs import last_start

    monkeypatch.setattr(last_start, "_PIECE_BYTES", max(piece, 70))
    monkeypatch.setattr(module, "_PIECE_BYTES", 200 + piece)
    lines = b"".join(b"%d of sk-a-long-key\n" % number for number in range(50))
    text, _ = recorded(tmp_path, lines + START + TRAFFIC, lines, key="sk-a-long-key")
    clean = lines.replace(b"sk-a-long-key", REMOVED.encode())
    assert text == clean + START + clean


def test_a_line_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE_BYTES", 256)
    text, _ = recorded(tmp_path, START, b"x" * 5000 + b"\nafter\n")
    assert text.startswith(START) and text.endswith(b"after\n") and len(text) < len(START) + 600


def test_a_log_without_a_ready_line_is_recorded_whole(tmp_path: Path) -> None:
    text, notes = recorded(tmp_path, ARGUMENTS, POOL)
    assert text == ARGUMENTS + POOL
    assert notes == ["the log of the attached server does not say that it is ready: recorded whole"]


def test_a_log_that_was_replaced(tmp_path: Path) -> None:
    log, notes = tmp_path / "theirs.log", list[str]()
    log.write_bytes(START + TRAFFIC)
    seen = AttachedLog(str(log))
    log.write_bytes(POOL)
    seen.write(tmp_path / "server.log", Redaction(), notes)
    assert (tmp_path / "server.log").read_bytes() == POOL
    log.unlink()
    seen.write(tmp_path / "server.log", Redaction(), notes)
    assert (tmp_path / "server.log").read_bytes() == POOL  # what was there, untouched
    assert notes == [
        "the log of the attached server was replaced meanwhile: recorded is what is in it now",
        "the log of the attached server could not be read again: No such file or directory",
    ]


def test_pipes_devices_and_folders_are_no_logs(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero", str(tmp_path)):
        with pytest.raises(ConfigError, match=r"engine\.attach_log") as raised:
            AttachedLog(path)
        assert len(str(raised.value).splitlines()) == 2
