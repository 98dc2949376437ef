"""What a tree leaves in shared memory is removed, and nothing else. A folder of files that are mapped stands for it."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from specbench.host import shared_memory
from specbench.host.shared_memory import Watched, remove, there

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="mappings are read from /proc")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shared_memory, "FOLDER", str(tmp_path))
    return tmp_path


@pytest.fixture
def watched(folder: Path) -> Iterator[Watched]:
    (folder / "sem.mp-earlier").write_bytes(bytes(32))
    found = Watched()
    yield found
    found.close()


def mapped(path: Path) -> mmap.mmap:
    path.write_bytes(bytes(32))
    with path.open("r+b") as opened:
        return mmap.mmap(opened.fileno(), 32)


def semaphore(folder: Path, name: str) -> mmap.mmap:
    """As sem_open of glibc makes one: mapped under a passing name, then linked to its own."""
    passing = folder / "sem.x7Qd0A"
    opened = mapped(passing)
    os.link(passing, folder / name)
    passing.unlink()
    return opened


def noted(watched: Watched) -> set[str]:
    return set(json.loads(watched.noted()))


def test_only_names_of_engines_count(folder: Path) -> None:
    for name in ("sem.mp-0b_x", "psm_1a2b", "nccl-Xy12", "sgl_shm_mq_11158_5a7d8c03", "sglang_loads_08c_7.shm"):
        (folder / name).touch()
    for name in ("model.safetensors", "torch_1_2", "sem.other", "sgl_"):
        (folder / name).touch()
    (folder / "sglang_folder").mkdir()
    (folder / "sglang_link").symlink_to(folder / "model.safetensors")
    assert set(there()) == {
        "nccl-Xy12",
        "psm_1a2b",
        "sem.mp-0b_x",
        "sgl_shm_mq_11158_5a7d8c03",
        "sglang_loads_08c_7.shm",
    }


def test_what_the_tree_maps_and_nobody_had_before_is_noted(folder: Path, watched: Watched) -> None:
    ours, earlier = mapped(folder / "sgl_shm_mq_1_a"), mapped(folder / "sem.mp-earlier")
    (folder / "sgl_of_others").touch()  # new, and mapped by nobody here: a container's that shares the folder
    model = mapped(folder / "model.safetensors")
    assert watched.look([]) is False
    assert watched.look([os.getpid()]) is True
    assert noted(watched) == {"sgl_shm_mq_1_a"}
    assert watched.look([os.getpid()]) is False  # nothing new
    lock = semaphore(folder, "sem.mp-7wb9re5o")
    assert watched.look([os.getpid()]) is True
    assert noted(watched) == {"sgl_shm_mq_1_a", "sem.mp-7wb9re5o"}
    remove(watched.noted())
    assert (folder / "sgl_shm_mq_1_a").exists() and (folder / "sem.mp-7wb9re5o").exists()  # they are mapped
    for opened in (ours, earlier, model, lock):
        opened.close()
    remove(watched.noted())
    assert sorted(path.name for path in folder.iterdir()) == ["model.safetensors", "sem.mp-earlier", "sgl_of_others"]


def test_another_object_of_the_same_name_stays(folder: Path, watched: Watched) -> None:
    mapped(folder / "psm_1").close()
    opened = mapped(folder / "psm_1")
    watched.look([os.getpid()])
    opened.close()
    (folder / "other").write_bytes(bytes(32))
    (folder / "other").replace(folder / "psm_1")
    remove(watched.noted())
    assert (folder / "psm_1").exists()


@pytest.mark.parametrize(
    "note", ["", "{", "[1]", "null", "[" * 100_000, '{"sem.mp-earlier": "x", "../x": 1}', '{"a": []}']
)
def test_a_damaged_note_removes_nothing(folder: Path, note: str) -> None:
    (folder / "sem.mp-earlier").touch()
    remove(note)
    assert (folder / "sem.mp-earlier").exists()


@pytest.mark.skipif(not Path("/proc/sys/fs/inotify").exists(), reason="needs inotify")
def test_it_is_looked_soon_after_something_has_come(
    folder: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    assert watched.descriptor >= 0
    assert (watched.is_due(), watched.wait_s(1.0)) == (False, 1.0)
    (folder / "sgl_1").touch()
    watched.news()
    assert (watched.is_due(), watched.wait_s(1.0)) == (False, pytest.approx(0.05))
    clock[0] = 100.06
    assert (watched.is_due(), watched.wait_s(1.0)) == (True, 0.0)
    watched.look([])
    watched.news()  # at once again: not before half a second has passed
    assert (watched.is_due(), watched.wait_s(1.0)) == (False, pytest.approx(0.5))
