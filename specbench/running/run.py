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
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from ..budget_types import MemoryBudget
from ..capture.watching import Watching
from ..configuration.config import RunConfig
from ..configuration.secret_names import refuse_secrets
from ..errors import ConfigError, LaunchError, SpecError
from ..lifecycle import leftovers
from ..lifecycle.attach import SERVER_INFO, Attached, attached
from ..lifecycle.emulating import Emulating, emulating
from ..lifecycle.ending import PORT, PORT_IN_USE, Ending
from ..lifecycle.headroom import headroom
from ..lifecycle.launch import Server, check_address, launch
from ..lifecycle.preflight import Checked, preflight
from ..lifecycle.served_config import AsServed, as_served
from ..lifecycle.time_limit import DEADLINE, left_s, until_s
from ..load.prompts import SMALLEST_VOCABULARY
from ..load.sending import Progress, Sending, send
from ..load.workload import check_fit, steps_of
from ..paths import resolve, runs_root
from ..records import foreign_json
from ..records.caveats import SIMULATED, caveats, marks_of
from ..records.record import RECORD, RunRecord, new_run_folder
from ..records.types import RequestTrace, RunStatus
from ..records.writer import RecordWriter
from ..replay.itself import UNTOLD, Played, pace
from ..vocabulary import vocabulary
from .environment import environment
from .recorded import AsRecorded, as_recorded

#: Names under which engines of different versions answer, newest first.
_MODEL_INFO = ("/model_info", "/get_model_info")
#: For everything that is asked of one server besides requests.
_CAPTURES_S = 60.0
#: A longer text of /metrics is stored compressed.
_COMPRESS_METRICS_FROM = 16_000


def run(
    config: RunConfig,
    out: Path | None = None,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
) -> RunRecord:
    """Runs `config` and returns its record, which lies in `<out>/record`.

    `out` is the run folder; not given: a new one under `runs/single` of the workbook (see `paths.runs_root`).
    `progress(phase, done, total)` is called as the run goes on, while starting with seconds waited; `notice(text)` for
    what must be seen at once: GPU memory that others hold before the start, or that is held after it.
    The record of a replay holds the configuration as it was recorded (see `recorded`). Raises ConfigError for a
    workload that cannot fit (with the arithmetic) unless `workload.allow_overflow`, and for a replay of another server
    than the recorded one; LaunchError when the engine, its version or the GPUs are not there, or the process cannot be
    started at all.
    """
    replayed = None
    refuse_secrets(config.engine)
    if config.engine.replay is not None:
        replayed = as_recorded(config, RunRecord.open(resolve(config.engine.replay, kind="engine.replay")))
        config = replayed.config
    target = None
    if config.engine.attach is not None:
        target, served = _attach(config, progress)
        config = served.config
    # The pool of an attached server is what it is; the one predicted for the card in the params may be another.
    _refuse_impossible(config, predicted(config) if target is None else None)
    if target is not None:
        checked = Checked(installed=target.version, notes=served.notes)
    elif replayed is not None:
        checked = Checked(installed=None, notes=replayed.notes)
    else:
        check_address(config)
        checked = preflight(config)
    if left_s(until_s()) == 0:
        raise LaunchError(
            "the deadline of the campaign came before a server was started.\nIt is to run again, with more time "
            "(--resume, a longer --deadline)."
        )
    emulated = emulating(config) if replayed is None and target is None else None
    folder = out or new_run_folder(runs_root() / "single", _stamped(config.name))
    created = out is None
    try:
        with _sigterm_raises(), RecordWriter(folder / RECORD, target.redaction if target else None) as writer:
            return _observe(config, writer, progress, notice or _unsaid, replayed, checked, emulated, target)
    except BaseException:
        if created:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _attach(config: RunConfig, progress: Progress | None) -> tuple[Attached, AsServed]:
    """The server of `engine.attach`, healthy and of the configuration that is asked for, or LaunchError/ConfigError."""
    target, timeout_s = Attached(config), config.engine.ready_timeout_s
    target.connect(
        timeout_s, (lambda waited_s: progress("attach", int(waited_s), int(timeout_s))) if progress else None
    )
    return target, as_served(config, target.info)


def predicted(config: RunConfig) -> MemoryBudget | None:
    """The budget from the configuration alone; None when this model or algorithm cannot be sized."""
    from ..budget.predict import predict

    try:
        return predict(config)
    except (ConfigError, SpecError):
        return None


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
    config: RunConfig,
    writer: RecordWriter,
    progress: Progress | None,
    notice: Callable[[str], None],
    replayed: AsRecorded | None,
    checked: Checked,
    emulated: Emulating | None,
    target: Attached | None,
) -> RunRecord:
    writer.config(config)
    record = None if replayed is None else replayed.record
    played = None if target is None else target.played
    room = headroom(config)
    left = leftovers.warnings() if record is None and target is None else ()
    for warning in (*left, *room.warnings, *(target.notes if target else ())):
        notice(warning)
    told = (
        *left,
        *checked.notes,
        *(emulated.notes if emulated else ()),
        *room.notes,
        *_marks(config),
        *caveats(config),
    )
    notes = list(dict.fromkeys((*told, *_notes(config, record), *_notes_of_replay(played))))
    sending, until = Sending(), until_s()
    timeout_s = config.engine.ready_timeout_s

    with Watching(
        config, writer.log_path, target.not_sampled if target else None, replayed=played is not None
    ) as watching:

        def tick(waited_s: float) -> None:
            if progress:
                progress(f"start: {watching.now()}", int(waited_s), int(timeout_s))

        began = time.perf_counter()
        passed = emulated.emulation.passed if emulated else None
        serving: contextlib.AbstractContextManager[Server | Attached] = (
            attached(target, writer.log_path)
            if target is not None
            else launch(
                config,
                log_path=writer.log_path,
                tick=tick,
                passed_fraction=passed,
                gpus=room.gpus,
                ready_within_s=left_s(until),
            )
        )
        with serving as server:
            start_s = time.perf_counter() - began
            writer.command(server.argv)
            if server.ready:
                watching.ready(server)
                captures = _Captures(server, writer)
                captures.json("server_info.json", SERVER_INFO)
                captures.json("model_info.json", _MODEL_INFO)
                if _has_something_to_send(config, record):
                    sending = _send_in_thread(config, server, watching, progress, until)
                    answered = captures.json("server_info_after.json", SERVER_INFO)  # by its scheduler too
                    server.proven = answered and _all_went_well(sending)
                    captures.text("metrics.txt", ("/metrics",))
            watching.stopping()
            stop_began = time.perf_counter()
            if progress:
                progress("stop" if target is None else "leave", 0, 1)
        stop_s = time.perf_counter() - stop_began
    for text in server.left_behind:
        notice(text)
    ending = server.ending(timeout_s, exit_code_known=record is None or record.status.exit_code is not None)
    cut = server.exit_code is None and (sending.cut or (server.timed_out and left_s(until) == 0))
    if cut:
        ending = _cut_short(server, sending, time.perf_counter() - began)
    if target is not None and played is None and any(trace.replayed_exactly is not None for trace in sending.traces):
        played = UNTOLD
        notes += _notes_of_replay(played)
    env = environment(config, server.argv, watching.telemetry.words, server.gpu_memory, replayed, checked, emulated)
    env |= {} if target is None else target.environment(env, played)
    writer.env({**env, "gpu_memory": server.gpu_use, "capture": watching.told()})
    if sending.traces:
        writer.requests(sending.traces)
    watching.write(writer)
    return writer.finish(
        RunStatus(
            status=ending.status,
            origin="measured" if record is None and played is None else "recorded",
            exit_code=ending.exit_code,
            reason=ending.reason,
            started_unix_s=server.started_unix_s,
            ended_unix_s=time.time(),
            ready_s=server.ready_s,
            phases=sending.phases
            if target is not None  # it was neither started nor stopped
            else {"start": round(start_s, 3), **sending.phases, "stop": round(stop_s, 3)},
            marks=watching.marks(server.ready_s),
            stages=watching.stages(server.ready_s),
            flushes=sending.flushes,
            caches=sending.caches,
            client=sending.client,
            notes=tuple(
                dict.fromkeys((*notes, *_unflushed(sending), *_shorter(sending), *server.notes, *watching.notes()))
            ),
            cut_short=DEADLINE if cut else PORT if _lost_its_port(config, ending) else None,
        )
    )


def _lost_its_port(config: RunConfig, ending: Ending) -> bool:
    """Another process took the port that was chosen for this server: nothing that was asked for is to blame."""
    chosen = config.engine.port is None and config.engine.replay is None and config.engine.attach is None
    return chosen and ending.cause == PORT_IN_USE


def _cut_short(server: Server | Attached, sending: Sending, after_s: float) -> Ending:
    """Of a run that was ended for a deadline: what it was doing then."""
    answered = sum(trace.ok for trace in sending.traces)
    doing = f"while requests were sent ({answered} answered)" if server.ready else "while the server was starting"
    reason = f"ended by the deadline of its campaign {after_s:.0f} s after its start, {doing}; it is to run again"
    return Ending(status="timed_out", exit_code=None, reason=reason)


def _unsaid(text: str) -> None:
    """The record has it as a note."""


def _unflushed(sending: Sending) -> list[str]:
    """Steps whose figures may be those of a warm prefix cache. Of a server that had died there are no figures."""
    answered = {trace.step for trace in sending.traces if trace.http_status is not None}
    return [
        f"prefix cache not flushed before {step}: {answer}"
        for step, answer in sending.flushes.items()
        if step in answered and not answer.startswith("HTTP 200")
    ]


def _shorter(sending: Sending) -> list[str]:
    """Steps with answers of fewer tokens than were asked for, which no end of text explains (`ignore_eos`)."""
    steps: dict[str, list[RequestTrace]] = {}
    for trace in sending.traces:
        steps.setdefault(trace.step, []).append(trace)
    notes = []
    for step, traces in steps.items():
        short = [trace for trace in traces if trace.ok and trace.output_tokens < trace.max_new_tokens]
        if short:
            least, reasons = min(trace.output_tokens for trace in short), {str(trace.finish_reason) for trace in short}
            notes.append(
                f"{step}: {len(short)} of {len(traces)} answers have fewer tokens than were asked for (as few as "
                f"{least:,} of {short[0].max_new_tokens:,}; finish reason {', '.join(sorted(reasons)[:3])[:100]}), "
                "though ends of text are to be ignored"
            )
    return notes


def _all_went_well(sending: Sending) -> bool:
    return bool(sending.traces) and not sending.cut and all(trace.ok for trace in sending.traces)


def _marks(config: RunConfig) -> tuple[str, ...]:
    """Acceptance that is simulated; the emulation has a note of its own."""
    return tuple(mark for mark in marks_of(config) if mark.startswith(SIMULATED))


def _has_something_to_send(config: RunConfig, replayed: RunRecord | None) -> bool:
    """Of a load-only recording only requests that cannot fit have an answer: the engine's error."""
    if config.workload.load_only:
        return False
    return replayed is None or bool(replayed.requests()) or config.workload.allow_overflow


def _notes(config: RunConfig, replayed: RunRecord | None) -> list[str]:
    notes = []
    workload = config.workload
    loads = (
        zip(workload.concurrency, workload.requests_per_load(), strict=True) if workload.request_rate is None else ()
    )
    for clients, requests in loads:
        if 0 < requests < clients:
            notes.append(f"{requests} requests cannot keep {clients} clients busy: fewer ran at once")
    if workload.load_only:
        notes.append("load only: workload.requests is 0, so there are no latencies")
    if replayed is None:
        return notes
    speed = config.engine.replay_speed
    told = pace(None if isinstance(speed, str) else speed)
    notes.append(f"replay of the record {replayed.name}, {told}; all times of requests are in recorded time")
    if not workload.load_only and not replayed.requests():
        notes.append("the replayed record is load only: no request was recorded, so the workload has no latencies")
    return notes + _of_record(replayed.status.notes)


def _of_record(notes: Iterable[str]) -> list[str]:
    """What holds of its replay too."""
    return [note for note in notes if not note.startswith(("load only:", "replay of"))]


def _notes_of_replay(played: Played | None) -> list[str]:
    """Of an attached server that is a replay."""
    if played is None:
        return []
    times = "were taken as they came" if played is UNTOLD else "are in recorded time"
    said = f"the attached server is no engine: replay of {played.words}; all times of requests {times}"
    return [said, *_of_record(played.notes)]


def _send_in_thread(
    config: RunConfig,
    server: Server | Attached,
    watching: Watching,
    progress: Progress | None,
    until: float | None,
) -> Sending:
    """In a thread with a loop of its own: a notebook's main thread has a running one. Ctrl-C still reaches this one.

    `until`: when it is ended (see `time_limit`), with what was seen until then.
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
                    on_step=watching.phase,
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
            thread.join(0.2)
            if left_s(until) == 0 and not cancel.is_set():
                cancel.set()
    except BaseException:
        cancel.set()
        thread.join(5.0)
        raise
    outcome = result[0]
    if isinstance(outcome, BaseException):
        raise outcome
    outcome.cut = cancel.is_set() and len(outcome.phases) < len(steps_of(config.workload))
    return outcome


class _Captures:
    """What a server tells of itself, into its record. All of it together has `_CAPTURES_S` seconds."""

    def __init__(self, server: Server | Attached, writer: RecordWriter) -> None:
        self._server, self._writer, self._left_s = server, writer, _CAPTURES_S

    def json(self, name: str, paths: tuple[str, ...]) -> bool:
        """A JSON object under the first of `paths` that has one; anything else is noted and not stored. Whether one
        was."""
        for path in paths:
            text = self._get(path)
            if text is None:
                continue
            problem = _why_no_object(text)
            if problem is None:
                self._writer.text(name, text)
                return True
            self._server.notes.append(f"{path} was not recorded: {problem}")
        return False

    def text(self, name: str, paths: tuple[str, ...]) -> None:
        for path in paths:
            text = self._get(path)
            if text is not None:
                self._writer.text(name, text, compress=len(text) >= _COMPRESS_METRICS_FROM)
                return

    def _get(self, path: str) -> str | None:
        if not self._server.alive:
            return None
        if self._left_s <= 0:
            self._server.notes.append(f"{path} was not asked: earlier answers took {_CAPTURES_S:.0f} s")
            return None
        began = time.monotonic()
        got = self._server.get(path, min(20.0, self._left_s))
        self._left_s -= time.monotonic() - began
        if got.problem is not None:
            self._server.notes.append(f"{path} was not recorded: {got.problem}")
        return None if got.body is None else got.body.decode("utf-8", "replace")


def _why_no_object(text: str) -> str | None:
    try:
        return None if isinstance(foreign_json.parse(text), dict) else "no JSON object"
    except ValueError as error:
        return "no JSON object" if str(error) == "no JSON" else str(error)


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
