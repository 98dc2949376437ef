"""The temporary folder of an engine: where it lies, what is kept out of it, and when it is left over.

That it goes at every end of a run is in test_lifecycle.py and test_lifecycle_ends.py, with real processes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from specbench.host.processes import MARK
from specbench.lifecycle import temporary
from specbench.lifecycle.server import remains
from specbench.lifecycle.supervisor import _emptied
from specbench.lifecycle.temporary import in_words, left_over, made, of_an_engine, remove, remove_unused, sweep

_SHARED = ("TORCHINDUCTOR_CACHE_DIR", "CUTE_DSL_CACHE_DIR", "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR", "RAY_TMPDIR")


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of this process, and the one for deep places, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "_SHORT", str(tmp_path))
    return tmp_path


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache has a place of its own, and the user has a name."""
    for name in _SHARED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "eve")


@pytest.mark.usefixtures("plain")
def test_what_starts_share_stays_where_it_would_have_been(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    given = of_an_engine({})
    assert given.note is None
    assert re.fullmatch(r"/tmp/sb-[0-9a-f]{8}", str(given.folder))
    assert given.variables == {
        "TMPDIR": str(given.folder),
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_eve",
        "CUTE_DSL_CACHE_DIR": "/tmp/eve/cutlass_python_cache",
        "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": "/tmp/eve/flash_attention_cute_dsl_cache",
        "RAY_TMPDIR": "/tmp",
    }
    assert given.folder is not None and not given.folder.exists()  # the supervisor makes it


@pytest.mark.usefixtures("plain")
def test_a_cache_that_has_a_place_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", "/data/cute")
    given = of_an_engine({"TORCHINDUCTOR_CACHE_DIR": "/data/inductor", "LOGNAME": "a:b"})
    assert set(given.variables) == {"TMPDIR", "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR", "RAY_TMPDIR"}
    # Torch replaces what no file name has on every system: cache_dir_utils.py, default_cache_dir.
    assert of_an_engine({"LOGNAME": "a:b"}).variables["TORCHINDUCTOR_CACHE_DIR"] == "/tmp/torchinductor_a_b"


@pytest.mark.usefixtures("plain")
def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number: torch takes the number, CuTe DSL the directory itself."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr("os.getuid", lambda: 1234)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    kept = of_an_engine({}).variables
    assert (kept["TORCHINDUCTOR_CACHE_DIR"], kept["CUTE_DSL_CACHE_DIR"]) == (
        "/tmp/torchinductor_uid_1234",
        "/tmp/cutlass_python_cache",
    )


@pytest.mark.parametrize("name", ["TMPDIR", "TEMP", "TMP"])
def test_a_directory_that_is_stated_is_left_to_whoever_stated_it(name: str) -> None:
    given = of_an_engine({name: "/scratch"})
    assert (given.folder, given.variables, given.note) == (None, {}, None)


def test_a_path_of_a_socket_must_not_be_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """107 bytes for all, 70 of them behind the folder, 12 for `/sb-01234567`: 25 are left for the directory."""
    monkeypatch.setattr("os.access", lambda path, mode: True)
    for usual, root in ((f"/{'a' * 24}", f"/{'a' * 24}"), (f"/{'a' * 25}", "/tmp"), (f"/{'é' * 13}", "/tmp")):
        monkeypatch.setattr(tempfile, "tempdir", usual)
        given = of_an_engine({})
        assert given.folder is not None and str(given.folder.parent) == root
        # What is shared between starts is where it was.
        assert given.variables["TORCHINDUCTOR_CACHE_DIR"].startswith(f"{usual}/torchinductor_")


def test_where_no_directory_is_short_enough_the_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", f"/{'a' * 25}")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    given = of_an_engine({})
    assert (given.folder, given.variables) == (None, {})
    assert given.note == (
        "the engine has no temporary folder of its own: paths of sockets in /aaaaaaaaaaaaaaaaaaaaaaaaa would be too "
        "long, and /tmp cannot be written to; what it left in /aaaaaaaaaaaaaaaaaaaaaaaaa is still there"
    )


def test_it_is_private_and_gone_after_the_block_whatever_lies_in_it(tmp_path: Path) -> None:
    folder, other = tmp_path / "sb-00000001", tmp_path / "other"
    other.mkdir()
    (other / "kept").touch()
    with made(str(folder), "m"):
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "link").symlink_to(other)
    assert not folder.exists()
    assert (other / "kept").exists()
    with pytest.raises(FileExistsError), made(str(other), "m"):  # never a folder of somebody else
        pytest.fail("it was taken")
    assert (other / "kept").exists()


def test_it_stays_while_a_process_of_its_server_cannot_be_ended(usual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs in the driver goes on using it, and what it has in shared memory is noted there."""
    folder = usual / "sb-00000001"
    marked = {os.getpid()}
    monkeypatch.setattr("specbench.host.processes.carries", lambda pid, mark: mark == "m" and pid in marked)
    with made(str(folder), "m"):
        temporary.note(folder, "{}")
    assert (folder / ".specbench-shared-memory").exists()
    assert _emptied(str(folder), marked) == (
        f"{folder}: the next start removes it, once processes [{os.getpid()}] have ended"
    )
    assert left_over() == ()
    remove_unused(folder)
    assert folder.exists()
    marked.clear()
    assert left_over() == (folder,)
    remove_unused(folder)
    assert not folder.exists()


def test_what_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    folder = tmp_path / "sb-00000001"
    folder.mkdir()
    monkeypatch.setattr(os, "rmdir", refuse)
    assert (remove(folder) or "").startswith(f"{folder}: [Errno 13] Permission denied")
    monkeypatch.undo()
    assert remove(folder) is None
    assert remove(folder) is None  # it need not be there


@pytest.mark.parametrize("file", [".specbench-mark", ".specbench-shared-memory"])
def test_what_is_no_file_of_ours_is_not_waited_for(usual: Path, file: str) -> None:
    folder = usual / "sb-00000001"
    folder.mkdir()
    (folder / ".specbench-mark").write_text(f"a-mark\n{os.uname().nodename}\n")
    (folder / file).unlink(missing_ok=True)
    os.mkfifo(folder / file)
    assert left_over() == (() if file == ".specbench-mark" else (folder,))
    (folder / file).unlink()
    (folder / file).symlink_to("/dev/zero")
    assert left_over() == (() if file == ".specbench-mark" else (folder,))
    assert remove(folder) is None


def test_folders_too_deep_in_one_another_hinder_no_start(usual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 goes into each by a call of its own."""
    folder = usual / "sb-00000001"
    folder.mkdir()
    (folder / ".specbench-mark").write_text(f"a-mark\n{os.uname().nodename}\n")
    monkeypatch.chdir(folder)
    for _ in range(sys.getrecursionlimit() + 100):
        Path("d").mkdir()
        monkeypatch.chdir("d")
    monkeypatch.chdir(usual)
    monkeypatch.setattr(temporary, "_TRIES", 1)
    left = sweep()
    if left:
        assert (remove(folder) or "").endswith("folders in it lie too deep in one another; rm -r removes them")
    assert left == ((folder,) if folder.exists() else ())
    subprocess.run(["rm", "-r", "-f", str(folder)], check=True)


def test_a_folder_that_stays_is_told_with_the_end_of_its_server() -> None:
    ended = {"temporary": "/tmp/sb-00000001: [Errno 13] Permission denied", "memory": {"is_back": True, "before": []}}
    assert list(remains(ended)) == [
        "THE TEMPORARY FOLDER OF THE SERVER COULD NOT BE REMOVED: /tmp/sb-00000001: [Errno 13] Permission denied"
    ]


def test_only_a_folder_whose_owner_is_gone_is_left_over(usual: Path) -> None:
    folder = usual / "sb-0123abcd"
    with made(str(folder), "a-mark"):
        assert left_over() == ()  # its supervisor lives
    folder.mkdir()
    (folder / "tmpabc").touch()
    assert left_over() == ()  # no mark in it: whose it is nobody knows
    (folder / ".specbench-mark").write_text(f"a-mark\n{os.uname().nodename}\n")
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env={**os.environ, MARK: "a-mark"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        process.stdout.readline()
        assert left_over() == ()  # a process of its server lives
    for other in ("", "a-mark", "a-mark\nanother-host", "\xff\nx", f"\n{os.uname().nodename}"):
        (usual / "sb-0123abcf").mkdir(exist_ok=True)
        (usual / "sb-0123abcf" / ".specbench-mark").write_text(other, "latin-1")
        assert usual / "sb-0123abcf" not in left_over()  # of another host, or not written whole
    (usual / "sb-0123abce").symlink_to(folder)
    assert left_over() == (folder,)
    assert in_words(left_over()) == (
        f"temporary folder of a server whose run was killed: {folder}; the next start removes what is left there and "
        "in shared memory, or: specbench doctor --clean"
    )
    assert sweep() == ()
    assert not folder.exists()


def test_many_folders_in_one_sentence() -> None:
    text = in_words(tuple(Path(f"/tmp/sb-{number:08x}") for number in range(10)))
    assert text.startswith("temporary folders of servers whose run was killed: /tmp/sb-00000000, /tmp/sb-00000001, ")
    assert "/tmp/sb-00000007 and 2 more; the next start removes" in text


def test_where_there_are_no_locks_nothing_is_taken_for_left_over(usual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = usual / "sb-0123abcd"
    folder.mkdir()
    (folder / ".specbench-mark").write_text(f"a-mark\n{os.uname().nodename}\n")
    monkeypatch.setattr(temporary, "is_held", lambda folder: None)
    sweep()
    assert folder.is_dir()
