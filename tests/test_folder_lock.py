"""Who works in a folder: a lock of the kernel, which ends with its process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import pytest

from specbench.errors import ConfigError
from specbench.records.folder_lock import alone, hold, is_held


def test_nobody_works_in_a_folder_in_which_a_campaign_is_resumed(tmp_path: Path) -> None:
    told = r"another specbench run is at work there\.\nWait until it has ended"
    two = "both were let in"
    with contextlib.ExitStack() as here:
        here.enter_context(alone(tmp_path, exclusive=False))
        here.enter_context(alone(tmp_path, exclusive=False))
        with pytest.raises(ConfigError, match=told), alone(tmp_path, exclusive=True):
            pytest.fail(two)
    with contextlib.ExitStack() as here:
        here.enter_context(alone(tmp_path, exclusive=True))
        with pytest.raises(ConfigError, match=told), alone(tmp_path, exclusive=False):
            pytest.fail(two)
    with alone(tmp_path, exclusive=True):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_held_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    lock = hold(tmp_path)
    assert is_held(tmp_path) is True
    os.close(lock)
    assert is_held(tmp_path) is False
    assert is_held(tmp_path / "missing") is None


def test_where_there_are_no_locks_everyone_is_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with alone(tmp_path, exclusive=True), alone(tmp_path, exclusive=True):
        assert is_held(tmp_path) is None
