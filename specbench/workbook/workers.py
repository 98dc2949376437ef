"""Worker processes that end with their parent, however it ends.

A worker executes notebooks; its kernel ends when the worker does, and the engine's supervisor when the kernel does. So
the one thing to see to is that a worker does not outlive the command. A command that is interrupted interrupts its
workers and waits for them: each interrupts its kernel, in which the run stops its server and removes its half record.
Each worker is a pool of its own, since a process pool is lost whole when one of its processes is: a worker that is
killed costs its own task, and is replaced.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any, ParamSpec, TypeVar

from ..errors import SpecbenchError
from .quick import only_notebooks
from .scratch import scratch

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

#: Seconds that interrupted workers get, all together: a server's end may take its grace period and the GPU's.
_ENDING_S = 90.0


class Workers(Executor):
    """`jobs` fresh processes (spawned: nothing of this process leaks into them), each fed by a thread.

    A task whose process is ended raises SpecbenchError; the tasks after it get a new process.
    """

    def __init__(self, jobs: int, folder: str) -> None:
        self._threads = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="worker")
        self._folder = folder
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
            return self._pool(thread).submit(_task, fn, args, kwargs).result()
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
                    initargs=(self._folder,),
                )
            return self._pools[thread]


@contextmanager
def worker_pool(jobs: int) -> Iterator[Workers]:
    """`jobs` workers.

    Their temporary files (sockets and connection files of kernels) lie in one folder, which is removed here: a worker
    that is ended cannot do it. When this process is killed, its workers remove it.
    """
    with scratch() as folder:
        pool = Workers(jobs, str(folder))
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _interrupt(multiprocessing.active_children())
            raise
        pool.shutdown()


def _interrupt(processes: list[BaseProcess]) -> None:
    """Ends workers in the good way, and those for which it takes too long in the other."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _ENDING_S
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    for process in processes:
        process.kill()
        process.join()


# ── in a worker ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _Interruption:
    """Of this worker: once, whether by Ctrl-C in the terminal (which all processes get) or by the command's SIGTERM."""

    busy = False  # a task is running
    came = False

    @classmethod
    def handle(cls, *_: object) -> None:
        if cls.came:
            return  # what the first one began must not be cut short
        cls.came = True
        if not cls.busy:
            os._exit(1)
        raise KeyboardInterrupt


def _task(fn: Callable[..., _Result], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Result:
    _Interruption.busy = True
    try:
        return fn(*args, **kwargs)
    finally:
        _Interruption.busy = False
        if _Interruption.came:
            os._exit(1)


def _begin(folder: str) -> None:
    tempfile.tempdir = folder
    only_notebooks()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _Interruption.handle)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()
