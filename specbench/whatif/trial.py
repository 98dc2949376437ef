"""The changed configuration, started: on this machine's GPUs, else as the recording that is equal to it.

In: an outlook. Out: a record beside the old one. It runs in a thread of its own, so that the notebook's kernel answers
meanwhile; `stop` ends it, and then nothing of it is left. What is predicted, recorded and measured stays apart: a
recording that was played is never a measurement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..configuration.config import RunConfig
from ..engines.sglang.given import server_args
from ..errors import LaunchError, RunStoppedError, SpecbenchError
from ..lifecycle.preflight import preflight
from ..records.record import RunRecord
from ..running.run import run
from ..studies.study import Study, study
from .handing import started
from .recordings import Found, Near, recordings

#: ServerArgs field.
_NO_GRAPHS = "disable_cuda_graph"

State = Literal["waiting", "running", "done", "stopped", "failed", "not here"]
#: Told a state and a sentence: how far it is, or why it is over.
Told = Callable[[State, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a configuration can be tried here."""

    config: RunConfig | None  # what `run` is given; None: not at all here
    words: str  # 'recorded (replayed): 0512_dflash_r4_exact', or 'measured: a real start'
    why_no_engine: str = ""
    nearest: tuple[Near, ...] = ()


def way(config: RunConfig, folder: str | Path | None, *, from_log: bool = False) -> Way:
    """A real start where this machine has engine and GPUs, else a recording that is equal, else none."""
    real = started(config)
    try:
        preflight(real)
        return Way(config=real, words="measured: a real start on this machine")
    except (LaunchError, SpecbenchError) as error:
        why = " ".join(str(error).split())
    found: Found = recordings(config, folder, from_log=from_log)
    if not found.same:
        return Way(config=None, words="", why_no_engine=why, nearest=found.nearest)
    record = found.same[0]
    words = f"recorded (replayed): {record.name}{_graphs_beside(config, record.config)}"
    return Way(config=replay_of(record, real.name), words=words, why_no_engine=why)


def _graphs_beside(config: RunConfig, recorded: RunConfig) -> str:
    """What of its memory outside the pools is another's: CUDA graphs decide no pool, and so no recording is passed over
    for them.
    """
    wanted, there = (not server_args(one).get(_NO_GRAPHS, False) for one in (config, recorded))
    if wanted == there:
        return ""
    return f", which was {'with' if there else 'without'} CUDA graphs (this start {'with' if wanted else 'without'})"


def replay_of(record: RunRecord, name: str) -> RunConfig:
    """The recording's own configuration, played without its waiting times."""
    return record.config.replace(
        {
            "name": name,
            "engine.replay": str(record.folder),
            "engine.replay_speed": "instant",
            "engine.attach": None,
            "engine.attach_log": None,
        }
    )


class Trial:
    """One start in the background."""

    def __init__(
        self,
        config: RunConfig,
        recordings: str | Path | None,
        told: Told,
        *,
        from_log: bool = False,
        choose: Callable[..., Way] = way,
    ) -> None:
        """`told` is called from the thread that runs it."""
        self._config, self._recordings, self._told, self._from_log = config, recordings, told, from_log
        self._choose = choose
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="what-if", daemon=True)
        self.way: Way | None = None
        self.found: Study | None = None  # the new record, when it is there

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Asks it to end; `told` hears when it has."""
        self._stop.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it is over within that time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _work(self) -> None:
        try:
            self._told("running", "looking for an engine on this machine")
            self.way = self._choose(self._config, self._recordings, from_log=self._from_log)
            if self.way.config is None:
                self._told("not here", self.way.why_no_engine)
                return
            words = self.way.words
            record = run(
                self.way.config,
                progress=lambda phase, done, total: self._told("running", f"{words}; {phase}"),
                notice=lambda text: self._told("running", f"{words}; NOTE: {text}"),
                stop=self._stop,
            )
            self.found = study(record.folder)
            self._told("done", f"{words}; record in {record.folder}")
        except RunStoppedError as error:
            self._told("stopped", str(error).replace("\n", " "))
        except SpecbenchError as error:
            self._told("failed", " ".join(str(error).split()))
        except Exception as error:  # a thread's error would go to stderr, and the panel would wait for ever
            self._told("failed", f"{type(error).__name__}: {error}. This is a fault of specbench.")
            raise
