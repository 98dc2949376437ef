"""The workload in a thread with a loop of its own: a notebook's main thread has a running one.

In: a server that is ready. Out: what was sent and what came back. Ctrl-C still reaches the main thread, and a deadline
ends the workload with what was seen until then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..configuration.config import RunConfig
from ..errors import RunStoppedError
from ..lifecycle.attach import Attached
from ..lifecycle.server import Server
from ..lifecycle.time_limit import left_s
from ..load.sending import Progress, Sending, send
from ..load.workload import steps_of

_LOOK_S = 0.2
#: After an interruption, for the requests that are under way.
_CANCEL_S = 5.0


def send_in_thread(
    config: RunConfig,
    server: Server | Attached,
    on_step: Callable[[str], None],
    progress: Progress | None,
    until: float | None,
    stop: threading.Event | None = None,
) -> Sending:
    """`on_step`: called as each step of the workload begins. `until`: when it is ended (see `time_limit`).

    RunStoppedError: `stop` was set meanwhile.
    """
    cancel = threading.Event()
    result: list[Sending | BaseException] = []

    def work() -> None:
        try:
            result.append(
                send(
                    config,
                    server.url,
                    progress=progress,
                    cancel=cancel,
                    on_step=on_step,
                    headers=server.headers,
                    replayed=server.played if isinstance(server, Attached) else None,
                )
            )
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=work, name="workload", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK_S)
            if stop is not None and stop.is_set():
                raise RunStoppedError(f"{config.name}: stopped while requests were sent.\nNo record of it is kept.")
            if left_s(until) == 0 and not cancel.is_set():
                cancel.set()
    except BaseException:
        cancel.set()
        thread.join(_CANCEL_S)
        raise
    outcome = result[0]
    if isinstance(outcome, BaseException):
        raise outcome
    outcome.cut = cancel.is_set() and len(outcome.phases) < len(steps_of(config.workload))
    return outcome
