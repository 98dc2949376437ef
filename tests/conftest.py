"""What holds for every test."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from specbench.paths import RUNS


@pytest.fixture(scope="session", autouse=True)
def runs_do_not_stay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs that name no folder, in this process or in one that it starts, leave nothing in the workbook."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RUNS, os.fspath(tmp_path_factory.mktemp("default-runs")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: one that several processes began last would keep them all waiting for its end."""
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> None:
    """A shell starts background jobs with SIGINT ignored, and children inherit that: tests send real ones."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
