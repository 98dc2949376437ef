"""Worker processes that end with their parent, however it ends.

A worker executes notebooks; its kernel ends when the worker does, and the engine's supervisor when the kernel does. So
the one thing to see to is that a worker does not outlive the command. Each worker is a pool of its own, since a process
pool is lost whole when one of its processes is: a worker that is killed costs its own task, and is replaced.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from .errors import SpecbenchError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

#: Seconds that a worker gets to end; what it started ends by itself.
_ENDING_S = 5.0


class Workers(Executor):
    """`jobs` fresh processes (spawned: nothing of this process leaks into them), each fed by a thread.

    A task whose process is ended raises SpecbenchError; the tasks after it get a new process.
    """

    def __init__(self, jobs: int, scratch: str) -> None:
        self._threads = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="worker")
        self._scratch = scratch
        self._pools: dict[int, ProcessPoolExecutor] = {}  # thread -> its worker
        self._lock = threading.Lock()
        self._closing = False

    def submit(
        self, fn: Callable[_Arguments, _Result], /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> Future[_Result]:
        return self._threads.submit(self._execute, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._closing = self._closing or not wait
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        with self._lock:
            self._closing = True
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def _execute(self, fn: Callable[..., _Result], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Result:
        thread = threading.get_ident()
        try:
            return self._pool(thread).submit(fn, *args, **kwargs).result()
        except BrokenProcessPool:
            with self._lock:
                broken = self._pools.pop(thread, None)
            if broken is not None:
                broken.shutdown(wait=False)
            raise SpecbenchError(
                "the process that executed the notebook was ended from outside (killed, or short of memory).\n"
                "The others went on; run this one again."
            ) from None

    def _pool(self, thread: int) -> ProcessPoolExecutor:
        with self._lock:
            if self._closing:
                raise CancelledError
            if thread not in self._pools:
                self._pools[thread] = ProcessPoolExecutor(
                    max_workers=1,
                    mp_context=multiprocessing.get_context("spawn"),
                    initializer=_begin,
                    initargs=(self._scratch,),
                )
            return self._pools[thread]


@contextmanager
def worker_pool(jobs: int) -> Iterator[Workers]:
    """`jobs` workers.

    Their temporary files (sockets and connection files of kernels) lie in one folder, which is removed here: a worker
    that is ended cannot do it.
    """
    with tempfile.TemporaryDirectory(prefix="specbench-", ignore_cleanup_errors=True) as scratch:
        pool = Workers(jobs, scratch)
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
