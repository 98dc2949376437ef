"""One configuration, run: predict, check the workload, start the server, send, stop, and leave a record.

In: a RunConfig. Out: a RunRecord, also when the server was refused, crashed or timed out: these are results. Raises
only for bad input (ConfigError: an impossible workload), and leaves nothing behind on any exit, Ctrl-C and SIGTERM
included.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from ..budget_types import MemoryBudget
from ..capture.watching import Watching
from ..configuration.config import RunConfig
from ..configuration.secret_names import refuse_secrets
from ..engines.sglang.addresses import METRICS, MODEL_INFO, SERVER_INFO
from ..errors import ConfigError, RunStoppedError
from ..lifecycle.attach import Attached
from ..lifecycle.ending import PORT, PORT_IN_USE, Ending
from ..lifecycle.server import Server
from ..lifecycle.time_limit import DEADLINE, left_s, until_s
from ..load.prompts import SMALLEST_VOCABULARY
from ..load.sending import Progress, Sending
from ..load.workload import check_fit
from ..paths import runs_root
from ..records.caveats import SIMULATED, caveats, marks_of
from ..records.folders import RECORD, new_run_folder
from ..records.record import RunRecord
from ..records.types import RunStatus
from ..records.writer import RecordWriter
from ..vocabulary import vocabulary
from . import notes
from .captures import Captures
from .carried import NOTE as CARRIED
from .sender import send_in_thread
from .subject import Subject, subject

#: Called with what must be seen at once.
Notice = Callable[[str], None]


def run(
    config: RunConfig,
    out: Path | None = None,
    progress: Progress | None = None,
    notice: Notice | None = None,
    stop: threading.Event | None = None,
) -> RunRecord:
    """Runs `config` and returns its record, which lies in `<out>/record`.

    `out` is the run folder; not given: a new one under `runs/single` of the workbook (see `paths.runs_root`).
    `progress(phase, done, total)` is called as the run goes on, while starting with seconds waited; `notice(text)` for
    what must be seen at once: GPU memory that others hold before the start, or that is held after it. `stop`, set from
    another thread, ends it like Ctrl-C, which only a main thread hears: RunStoppedError is raised, and no record stays.
    The record of a replay holds the configuration as it was recorded (see `recorded`). Raises ConfigError for a
    workload that cannot fit (with the arithmetic) unless `workload.allow_overflow`, and for a replay of another server
    than the recorded one; LaunchError when the engine, its version or the GPUs are not there, or the process cannot be
    started at all.
    """
    refuse_secrets(config.engine)
    measured = subject(config, progress)
    _refuse_impossible(measured.config, measured.budget())
    measured.check()
    folder = out or new_run_folder(runs_root() / "single", _stamped(measured.config.name))
    created = out is None
    try:
        with _sigterm_raises(), RecordWriter(folder / RECORD, measured.redaction) as writer:
            return _observe(measured, writer, progress, notice or _unsaid, stop)
    except BaseException:
        if created:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _refuse_impossible(config: RunConfig, budget: MemoryBudget | None) -> None:
    known = None if config.workload.load_only else vocabulary(config)
    if known is not None and known < SMALLEST_VOCABULARY:
        raise ConfigError(
            f"model: {config.model} knows {known} token ids; prompts are drawn from at least {SMALLEST_VOCABULARY}.\n"
            "Take a model with a larger vocabulary (vocab_size of its config.json), or send nothing "
            "(workload.requests: 0)."
        )
    problems = check_fit(config, budget)
    if problems and not config.workload.allow_overflow:
        raise ConfigError(
            f"workload: {'; '.join(problems)}.\n"
            "Shorten input_tokens or output_tokens, or set workload.allow_overflow: true to see the engine's own error."
        )


def _observe(
    measured: Subject,
    writer: RecordWriter,
    progress: Progress | None,
    notice: Notice,
    stop: threading.Event | None,
) -> RunRecord:
    config = measured.config
    writer.config(config)
    for warning in measured.warnings():
        notice(warning)
    told = [*measured.notes(), *_marks(config), *caveats(config), *notes.before(config)]
    sending, until = Sending(), until_s()
    with measured.watching(writer.log_path) as watching:
        began = time.perf_counter()
        tick = _tick(config, watching, progress, stop)
        with measured.serving(writer.log_path, tick, left_s(until)) as server:
            start_s = time.perf_counter() - began
            writer.command(server.argv)
            if server.ready:
                watching.ready(server)
                sending = _use(measured, server, writer, watching, progress, until, stop)
            watching.stopping()
            stop_began = time.perf_counter()
            if progress:
                progress("stop" if measured.starts else "leave", 0, 1)
        stop_s = time.perf_counter() - stop_began
    for text in server.left_behind:
        notice(text)
    origin = measured.answered(sending)
    cut = server.exit_code is None and (sending.cut or (server.timed_out and left_s(until) == 0))
    if cut:
        ending = _cut_short(server, sending, time.perf_counter() - began)
    else:
        ending = server.ending(config.engine.ready_timeout_s, exit_code_known=measured.exit_code_known)
    carried = _write(measured, server, writer, watching, sending)
    told += [
        *measured.recorded_notes(),
        *carried,
        *notes.after(sending),
        *server.notes,
        *watching.notes(),
    ]
    return writer.finish(
        RunStatus(
            status=ending.status,
            origin=origin,
            exit_code=ending.exit_code,
            reason=ending.reason,
            started_unix_s=server.started_unix_s,
            ended_unix_s=time.time(),
            ready_s=server.ready_s,
            phases=measured.phases(start_s, sending.phases, stop_s),
            marks=watching.marks(server.ready_s),
            stages=watching.stages(server.ready_s),
            flushes=sending.flushes,
            caches=sending.caches,
            client=sending.client,
            notes=tuple(dict.fromkeys(told)),
            cut_short=DEADLINE if cut else PORT if _lost_its_port(measured, ending) else None,
        )
    )


def _tick(
    config: RunConfig, watching: Watching, progress: Progress | None, stop: threading.Event | None
) -> Callable[[float], None]:
    """Called with the seconds waited while the server starts."""

    def tick(waited_s: float) -> None:
        if stop is not None and stop.is_set():
            raise RunStoppedError(f"{config.name}: stopped while the server was starting.\nNo record of it is kept.")
        if progress:
            progress(f"start: {watching.now()}", int(waited_s), int(config.engine.ready_timeout_s))

    return tick


def _use(
    measured: Subject,
    server: Server | Attached,
    writer: RecordWriter,
    watching: Watching,
    progress: Progress | None,
    until: float | None,
    stop: threading.Event | None,
) -> Sending:
    """What a server that is ready is asked and sent. `until`: of `time.monotonic`, when the run has to end."""
    captures = Captures(server, writer)
    captures.json("server_info.json", SERVER_INFO)
    captures.json("model_info.json", MODEL_INFO)
    if not measured.has_answers():
        return Sending()
    sending = send_in_thread(measured.config, server, watching.phase, progress, until, stop)
    answered = captures.json("server_info_after.json", SERVER_INFO)  # by its scheduler too
    server.proven = answered and _all_went_well(sending)
    captures.text("metrics.txt", METRICS)
    return sending


def _write(
    measured: Subject, server: Server | Attached, writer: RecordWriter, watching: Watching, sending: Sending
) -> tuple[str, ...]:
    """Environment, requests and what was watched; of a replay the last may be the recording's, which a note tells."""
    env = measured.environment(server, watching.telemetry.words)
    from_recording = measured.carried(writer.log_path)
    env = {**env, "gpu_memory": server.gpu_use, "capture": watching.told()}
    writer.env(env if from_recording is None else {**env, **from_recording.env})
    if sending.traces:
        writer.requests(sending.traces)
    (from_recording or watching).write(writer)
    return () if from_recording is None else (CARRIED,)


def _lost_its_port(measured: Subject, ending: Ending) -> bool:
    """Another process took the port that was chosen for this engine: nothing that was asked for is to blame."""
    chosen = measured.starts and measured.origin == "measured" and measured.config.engine.port is None
    return chosen and ending.cause == PORT_IN_USE


def _cut_short(server: Server | Attached, sending: Sending, after_s: float) -> Ending:
    """Of a run that was ended for a deadline: what it was doing then."""
    answered = sum(trace.ok for trace in sending.traces)
    doing = f"while requests were sent ({answered} answered)" if server.ready else "while the server was starting"
    reason = f"ended by the deadline of its campaign {after_s:.0f} s after its start, {doing}; it is to run again"
    return Ending(status="timed_out", exit_code=None, reason=reason)


def _unsaid(text: str) -> None:
    """The record has it as a note."""


def _all_went_well(sending: Sending) -> bool:
    return bool(sending.traces) and not sending.cut and all(trace.ok for trace in sending.traces)


def _marks(config: RunConfig) -> tuple[str, ...]:
    """Acceptance that is simulated; the emulation has a note of its own."""
    return tuple(mark for mark in marks_of(config) if mark.startswith(SIMULATED))


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    """SIGTERM ends the run like Ctrl-C, so that everything is cleaned up. Only a main thread can ask for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stamped(name: str) -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{name}"
