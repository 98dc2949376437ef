"""What this machine can do: Python, packages, GPUs, the engine with its algorithms and flags, leftovers, the port.

In: an interpreter that has the engine. Out: an `Examination`, and what `specbench doctor --json` prints of it. Nothing
is started but that interpreter, which is asked what it has. Unknown is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..engines.sglang.capabilities import Capabilities
from ..engines.sglang.fits import lacking
from ..engines.sglang.sizing import assumed_sizing
from ..host import machine, processes
from ..host.gpu_use import InUse
from ..host.machine import EngineState, GpuState
from . import leftovers, temporary

#: SGLang's own default port; specbench itself takes a free one.
DEFAULT_PORT = 30000
_NOTEBOOK_PACKAGES = ("papermill", "pandas", "matplotlib", "seaborn")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHelp:
    """What the engine's own --help told."""

    algorithms: tuple[str, ...] | None
    flags: int | None  # how many
    reason: str | None  # why it told nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The installed engine, by its files, and by its own --help where that was asked."""

    name: str
    python: str  # the interpreter that was asked
    version: str | None
    sizing: str | None  # what is assumed of its sizing; None: its own was read
    torch: str | None
    reason: str | None  # why there is none
    is_missing: bool  # the interpreter answered, and has no engine
    folder: str | None  # of the package that would be imported
    plugins: tuple[str, ...]
    algorithms: tuple[str, ...] | None
    flags: int | None  # how many
    known_from: str | None  # where flags are known from, in words
    lacks: dict[str, str] | None  # keys of a params file that it has no flag for -> the newest name of that flag
    help: OwnHelp | None  # None: not asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """This machine, just now."""

    python: str
    packages: dict[str, str | None]  # None: not installed
    gpus: GpuState
    in_use: tuple[InUse, ...] | str  # of each GPU; why it cannot be read
    engine: Engine
    left_over: dict[int, str]  # pid -> name, of earlier runs
    left_over_folders: tuple[Path, ...]  # likewise
    port_free: bool

    @property
    def can(self) -> dict[str, bool]:
        """What it is for -> whether it is possible here."""
        return {
            "predict, diagnose, replay": True,
            "notebooks and reports": all(self.packages[name] for name in _NOTEBOOK_PACKAGES),
            "start real servers": self.engine.version is not None and bool(self.gpus.gpus),
        }


def examine(python: str | None, env: Mapping[str, str], *, thorough: bool) -> Examination:
    """`python`: that has the engine; None: this one. `thorough`: the engine's own --help too, up to a minute."""
    state = machine.engine(python, env=env)
    told = machine.engine_help(python, env=env) if thorough and state.has else None
    return Examination(
        python=machine.python_version(),
        packages=machine.packages(),
        gpus=machine.gpus(),
        in_use=machine.gpu_use(),
        engine=_engine(state, told),
        left_over=leftovers.left_over(),
        left_over_folders=temporary.left_over(),
        port_free=processes.why_not_bindable("127.0.0.1", DEFAULT_PORT) is None,
    )


def to_document(found: Examination) -> dict[str, Any]:
    """For programs."""
    return {
        "schema": 1,
        "python": found.python,
        "packages": found.packages,
        "gpus": [asdict(gpu) for gpu in found.gpus.gpus],
        "gpu_memory_in_use": None if isinstance(found.in_use, str) else [asdict(use) for use in found.in_use],
        "driver": found.gpus.driver,
        "gpu_reason": found.gpus.reason,
        "engine": asdict(found.engine),
        "left_over": [{"pid": pid, "name": name} for pid, name in found.left_over.items()],
        "left_over_folders": [str(folder) for folder in found.left_over_folders],
        "default_port": {"port": DEFAULT_PORT, "free": found.port_free},
        "can": found.can,
    }


def _engine(state: EngineState, told: Capabilities | str | None) -> Engine:
    """Its files tell more than its --help, where they can be read."""
    flags = None if state.has is None else state.has.flags
    source = None if state.has is None else state.has.source
    algorithms = None if state.has is None else state.has.algorithms
    asked = None
    if isinstance(told, str):
        asked = OwnHelp(algorithms=None, flags=None, reason=told)
    elif told is not None:
        asked = OwnHelp(algorithms=told.algorithms, flags=None if told.flags is None else len(told.flags), reason=None)
        if flags is None and told.flags is not None:
            flags, source = told.flags, told.source
        algorithms = algorithms or told.algorithms
    return Engine(
        name="sglang",
        python=state.python,
        version=state.version,
        sizing=None if state.version is None else assumed_sizing(state.version),
        torch=state.torch,
        reason=state.reason,
        is_missing=state.is_missing,
        folder=state.folder,
        plugins=state.plugins,
        algorithms=algorithms,
        flags=None if flags is None else len(flags),
        known_from=source,
        lacks=None if flags is None else lacking(flags),
        help=asked,
    )
