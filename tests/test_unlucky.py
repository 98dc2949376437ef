"""The surroundings of a command: streams that are closed, widths that no terminal has, devices instead of files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specbench.cli import _have_width
from specbench.cli.output import make_room, write_text
from specbench.errors import ConfigError
from specbench.paths import resolve, without_end
from specbench.studies.opened import opened

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(os.name == "nt", reason="closes streams as a shell of Unix does")
def test_closed_streams_are_empty_ones() -> None:
    """As `<&- >&- 2>&-` and some services leave them: Python gives None for each."""
    command = f"'{sys.executable}' -m specbench diagnose tests/records/h200_story-8/server.log <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("columns", ["0", "00", "\u00b2", "-5", "wide", "99999999999"])
def test_a_width_that_no_terminal_has_is_none(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """rich prints nothing at all into 0 columns, and reads a superscript two as a digit."""
    monkeypatch.setenv("COLUMNS", columns)
    _have_width()
    assert "COLUMNS" not in os.environ


def test_a_width_of_a_terminal_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "132")
    _have_width()
    assert os.environ["COLUMNS"] == "132"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="Unix")
def test_a_device_without_end_is_no_log() -> None:
    with pytest.raises(ConfigError, match=r"\Alog: '/dev/zero' is a device or a socket\.\nGive a file, or a pipe\.\Z"):
        resolve("/dev/zero", kind="log")
    assert resolve("/dev/null") == Path("/dev/null")
    with Path("/dev/zero").open("rb") as zero, Path("/dev/null").open("rb") as null:
        assert [without_end(one.fileno()) for one in (zero, null)] == [True, False]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there stays when the disk is full, and no piece of the new one."""
    target = tmp_path / "report.md"
    write_text("--report", target, "old")

    def full(file: Path, data: bytes) -> int:
        file.open("wb").close()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(Path, "write_bytes", full)
        with pytest.raises(ConfigError, match=r"\A--report .*report\.md: not written: No space left on device\.\n"):
            write_text("--report", target, "new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("report.md", "old")]


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="Unix")
def test_a_device_and_a_link_are_written_into_and_not_replaced(tmp_path: Path) -> None:
    """/dev/stdout leads to a file where the output of a command goes to one."""
    file, link, pipe = tmp_path / "out.txt", tmp_path / "stdout", tmp_path / "null"
    file.write_text("")
    link.symlink_to(file)
    pipe.symlink_to("/dev/null")
    for target in (link, pipe):
        write_text("--report", target, "text \udce9")
    assert link.is_symlink()
    assert pipe.is_symlink()
    assert file.read_text() == "text ?"


def test_a_report_that_cannot_be_there_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for target in (tmp_path, tmp_path / "file" / "report.md"):
        with pytest.raises(ConfigError, match=r"\A--report .*\n.+\Z"):
            make_room("--report", target)


@pytest.mark.parametrize("given", [5, None, True, {"a": 1}, b"x.log", [5], [[]]])
def test_a_notebooks_parameter_that_is_no_path_is_two_lines(given: Any) -> None:
    """papermill -y '{record: 5}'."""
    with pytest.raises(ConfigError, match=r"\Arecord or log: got .{1,20}\.\nExpected a path, as text\.\Z"):
        opened(given)


def test_what_is_told_that_has_no_names_is_two_lines() -> None:
    with pytest.raises(ConfigError, match=r"\Atold: got 5 \(a whole number\)\.\nExpected names with their values"):
        opened(ROOT / "tests/records/h200_story-8/server.log", told=5)  # type: ignore[arg-type]
