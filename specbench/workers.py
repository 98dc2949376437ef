"""Worker processes that end with their parent, however it ends.

A worker executes notebooks; its kernel ends when the worker does, and the engine's supervisor when the kernel does. So
the one thing to see to is that a worker does not outlive the command.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

#: Seconds that a worker gets to end; what it started ends by itself.
_ENDING_S = 5.0


@contextmanager
def worker_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of `jobs` fresh processes (spawned: nothing of this process leaks into them).

    Their temporary files (sockets and connection files of kernels) lie in one folder, which is removed here: a worker
    that is ended cannot do it.
    """
    with tempfile.TemporaryDirectory(prefix="specbench-", ignore_cleanup_errors=True) as scratch:
        pool = ProcessPoolExecutor(
            max_workers=jobs,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(scratch,),
        )
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
                process.join(_ENDING_S)
            raise
        pool.shutdown()


def _begin(scratch: str) -> None:
    tempfile.tempdir = scratch
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()
