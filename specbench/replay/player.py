"""The recorded log, written at its time, and the recorded end of the process.

Deadlines are absolute: loop time at the beginning of a piece plus the recorded seconds divided by the speed, so nothing
drifts. `speed` None is instant: nothing waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NoReturn

from ..records.record import RunRecord
from .plan import Answer, Plan
from .timeline import Emission, timeline

#: The exit code of a recorded end whose code was not logged.
_UNKNOWN_CODE = 1
#: At instant speed a crash waits this long for the other requests of its batch, so that all of them are in flight.
_BATCH_WAIT_S = 1.0
#: A break that comes together with the last tokens would take them from a client that has not read them yet.
BREAK_AFTER_S = 0.05


class Player:
    """The log of one record being played."""

    def __init__(self, record: RunRecord, plan: Plan, *, speed: float | None, out: BinaryIO) -> None:
        crashed = plan.crash_step is not None
        self._plan, self._speed, self._out = plan, speed, out
        self._exit_code = record.status.exit_code
        self._log = timeline(record.log_bytes(), record.requests(), record.status.marks, to_the_end=crashed)
        self.ready = False
        self.crashing = False  # from here on nothing is answered any more, but what came before the recorded crash
        self.driven: set[str] = set()  # recorded steps whose lines are being written
        #: The recorded server ended with the last line of its log, before it served anything.
        self.ends_with_its_log = record.status.status != "served" and not crashed
        self._arrived: dict[str, int] = {}
        self._batch_in_flight = asyncio.Event()  # all requests of the crashing batch have come
        self._hurry = asyncio.Event()  # the process is asked to end: write what is due without waiting
        self._tasks: set[asyncio.Task[None]] = set()
        self._rest_written = False

    @property
    def start_s(self) -> float:
        """Recorded seconds until it is ready; of a server that never was, until its end."""
        last = len(self._log.start) - 1 if self._log.ready is None else self._log.ready
        return self._log.start[last].at_s if self._log.start else 0.0

    async def start(self, listen: Callable[[], Awaitable[None]], ready: Callable[[], None]) -> None:
        """Writes the start of the log; calls `listen` at the line from which the recorded port accepted, and `ready`
        at the one from which it is healthy.
        """
        began = asyncio.get_running_loop().time()
        for place, emission in enumerate(self._log.start):
            await self.until(began, emission.at_s)
            self._write([emission])
            if place == self._log.listening:
                await listen()
            if place == self._log.ready:
                self.ready = True
                ready()
        if self.ends_with_its_log:
            self.die()

    async def until(self, began: float, recorded_s: float) -> None:
        """Waits until `recorded_s` after `began`, in the replay's time."""
        if self._speed is None:
            return
        left = began + recorded_s / self._speed - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(left)

    def drive(self, answer: Answer) -> None:
        """The first request of a recorded step starts the step's lines; of the crashing step also its end."""
        self._arrived[answer.step] = self._arrived.get(answer.step, 0) + 1
        crashes = answer.step == self._plan.crash_step
        if crashes and self._arrived[answer.step] >= self._plan.crash_batch:
            self._batch_in_flight.set()
        if answer.step in self.driven or not (answer.exact or crashes):
            return
        self.driven.add(answer.step)
        self.crashing = self.crashing or crashes
        self._spawn(self._crash(answer.step) if crashes else self._play(self._log.steps.get(answer.step, ())))

    def write_rest(self) -> None:
        """What the recorded run logged after its last step."""
        if not self._rest_written:
            self._rest_written = True
            self._write(self._log.rest)

    async def finish(self) -> None:
        """The lines that are still due, at once, and the rest when every recorded step was driven."""
        self._hurry.set()
        await asyncio.gather(*self._tasks)
        if self.driven >= {step.name for step in self._plan.steps}:
            self.write_rest()

    def die(self) -> NoReturn:
        """Ends this process as the recorded one ended: by its signal, or with its exit code."""
        self._out.flush()
        code = self._exit_code
        if code is not None and code < 0:
            os.kill(os.getpid(), -code)
        os._exit(_UNKNOWN_CODE if code is None else code)

    async def _crash(self, step: str) -> None:
        began = asyncio.get_running_loop().time()
        if self._speed is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._batch_in_flight.wait(), _BATCH_WAIT_S)
            await asyncio.sleep(BREAK_AFTER_S)
        await self._play(self._log.steps.get(step, ()))
        await self.until(began, self._plan.crash_after_s)
        self.die()

    async def _play(self, piece: Sequence[Emission]) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        for emission in piece:
            left = 0.0 if self._speed is None else began + emission.at_s / self._speed - clock()
            if left > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), left)
            self._write([emission])

    def _write(self, piece: Sequence[Emission]) -> None:
        for emission in piece:
            self._out.write(emission.data)
        self._out.flush()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
