"""Before a real start: does the interpreter have the engine and the flags that are asked for, the machine the GPUs?

In: a RunConfig that names no replay. Out: the installed version, and notes for the record (another card than
configured, a version that could not be read). LaunchError when the server could not be the configured one: its figures
would be those of another engine, or of none. Nothing of the engine is imported for this.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..configuration.config import RunConfig
from ..engines.sglang.fits import misfits
from ..engines.sglang.given import server_args
from ..errors import ConfigError, LaunchError
from ..gpus import GpuSpec, load_gpu
from ..host import machine
from ..paths import interpreter
from ..units import MIB

#: Of the first question to an interpreter: it may lie on a slow disk, and nothing has been read from it yet.
_FIRST_S = 180.0
_RELEASE = re.compile(r"\d+\.\d+\.\d+(?:\.post\d+)?")
#: As a card of the GPU table and as a device of the engine.
HOST = "cpu"
_ANY_WORDS = frozenset({"nvidia", "geforce", "gb"})
#: Devices of the engine that are such cards; None: it is left to the engine.
_CUDA = (None, "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found for a start that may go ahead."""

    installed: str | None  # version of the engine; None: could not be read
    notes: tuple[str, ...]
    engine: machine.EngineState | None = None  # None: no engine of this machine is started


def preflight(config: RunConfig) -> Checked:
    """LaunchError (two lines) when the engine, its version, one of the flags asked for, or GPUs are missing."""
    found = machine.engine(config.engine.python, env=config.engine.env)
    version, flags, cards = _engine(config, found), _flags(config, found), _gpus(config)
    return Checked(installed=found.version, notes=(*version, *cards, *flags), engine=found)


def unusable(configs: Sequence[RunConfig]) -> dict[str, str]:
    """Name of each configuration whose engine cannot be the one asked for -> why. Each engine is asked once."""
    known: dict[tuple[object, ...], str | None] = {}
    for config in configs:
        if config.engine.replay is None and config.engine.attach is None and _key(config) not in known:
            known[_key(config)] = _why_unusable(config)
    return {config.name: why for config in configs if (why := known.get(_key(config))) is not None}


def without_gpus(configs: Sequence[RunConfig]) -> dict[str, str]:
    """Name of each configuration that needs more GPUs than this machine has -> why. Without NVML's package: none."""
    starts = [config for config in configs if config.engine.replay is None and config.engine.attach is None]
    asking = [config for config in starts if config.gpu.name != HOST and _device(config) in _CUDA]
    if not asking:
        return {}
    state = machine.gpus()
    return {config.name: why for config in asking if (why := _too_few(config, state)) is not None}


def no_interpreter(config: RunConfig) -> tuple[str, ...]:
    """A sentence for a dry run when the interpreter is not there. Nothing is started: what it has is asked later."""
    if config.engine.replay is not None or config.engine.attach is not None:
        return ()
    python = interpreter(config.engine.python)
    return () if shutil.which(python) else (f"run refuses this: engine.python: {python!r:.200} is not on this machine",)


def _key(config: RunConfig) -> tuple[object, ...]:
    """What decides which engine is found, and whether it is the right one."""
    engine = config.engine
    started = engine.replay is None and engine.attach is None
    return (started, engine.python, tuple(sorted(engine.env.items())), engine.version, engine.sizing)


def _why_unusable(config: RunConfig) -> str | None:
    try:
        _engine(config, machine.engine(config.engine.python, env=config.engine.env, timeout_s=_FIRST_S))
    except LaunchError as problem:
        return str(problem)
    return None


def _engine(config: RunConfig, found: machine.EngineState) -> list[str]:
    asked, where = config.engine.version, found.python
    if found.reason is not None:
        problem = f"sglang is not installed for {where}" if found.is_missing else f"{where}: {found.reason}"
        raise LaunchError(
            f"engine.python: {problem}.\nName an interpreter that has it (engine.python), or play a recording "
            "(engine.replay); `specbench doctor` tells what there is."
        )
    if found.version is None:
        return [f"the version of the installed sglang could not be read ({where}); {asked} is what the params say"]
    if same_version(found.version, asked):
        return []
    if _RELEASE.fullmatch(_public(found.version)):
        raise LaunchError(
            f"engine.version: {asked} is asked for, {where} has sglang {found.version}.\n"
            f"Set engine.version: {found.version}, or name an interpreter that has {asked} (engine.python)."
        )
    if config.engine.sizing is None:
        raise LaunchError(
            f"engine.version: {asked} is asked for, {where} has the development build {found.version}.\n"
            "Name the release that it follows (engine.sizing), or an interpreter that has the release (engine.python)."
        )
    built = f"sglang {found.version} ran (a development build), engine.version says {asked}"
    return [f"{built}; predicted by the rules of {config.engine.sizing} (engine.sizing)"]


def _flags(config: RunConfig, found: machine.EngineState) -> list[str]:
    """Algorithm, flags and choices, against the installed files. What cannot be known is a note, never a refusal."""
    has = found.has
    if has is None:
        return []
    lacking = [name for name, known in (("flags", has.flags), ("algorithms", has.algorithms)) if known is None]
    notes = [
        f"the {name} of the installed sglang could not be read from {found.folder}, so they were not checked"
        for name in lacking
    ]
    wrong = misfits(config, has, f"sglang {found.version or config.engine.version} at {found.folder}")
    if wrong and not config.engine.allow_refused and not found.plugins:
        first, *more = wrong
        raise LaunchError(f"{first}{f' And {len(more)} more: {_keys(more)}.' if more else ''}")
    if wrong and not config.engine.allow_refused:
        notes.append(f"plug-ins of sglang are installed ({', '.join(found.plugins)}), which may add what it lacks")
    return notes + [" ".join(text.splitlines()) for text in wrong]


def _keys(texts: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(text.partition(":")[0] for text in texts))


def same_version(installed: str, asked: str) -> bool:
    """Whether they are one release: the label of a build (+cu130) makes no other."""
    return installed == asked or (_public(installed) == asked and _RELEASE.fullmatch(asked) is not None)


def _public(version: str) -> str:
    """Without the build label: 0.5.16+cu130 is the release 0.5.16."""
    return version.partition("+")[0]


def _gpus(config: RunConfig) -> list[str]:
    device = _device(config)
    if config.gpu.name == HOST:
        if device != HOST:
            raise LaunchError(
                f"gpu.name: {HOST} is no GPU, and the engine would look for one.\n"
                f"Set engine.args.device: {HOST}, or name the card."
            )
        return []
    if device not in _CUDA:
        return [f"the server ran on {device} (engine.args.device), not on a {config.gpu.name}"]
    state = machine.gpus()
    if state.is_unknown:
        return [f"GPUs could not be checked: {state.reason}"]
    why = _too_few(config, state)
    if why is not None:
        raise LaunchError(why)
    listed = _visible(config, state)
    by_number = listed is not None and all(entry.isdecimal() for entry in listed)
    return _other_cards(config, [gpu for gpu in state.gpus if not by_number or str(gpu.index) in (listed or ())])


def _device(config: RunConfig) -> object:
    return server_args(config).get("device")


def _too_few(config: RunConfig, state: machine.GpuState) -> str | None:
    """In two lines; None: there are as many as it needs, or nobody here can tell."""
    if state.is_unknown:
        return None
    needed, there = on_this_host(config, config.gpu.count), len(state.gpus)
    listed = _visible(config, state)
    usable = there if listed is None else _usable(there, listed)
    if usable >= needed:
        return None
    names = ", ".join(dict.fromkeys(gpu.name for gpu in state.gpus))
    seen = f"this machine has {there} ({names})" if there else f"this machine has none ({state.reason})"
    hidden = f", CUDA_VISIBLE_DEVICES leaves {usable}" if usable < there else ""
    first = f"gpu.count: {needed} × {config.gpu.name} needed, {seen}{hidden}.\n"
    if there >= needed:
        return f"{first}Unset CUDA_VISIBLE_DEVICES, or let it name {needed} of them (in engine.env, where it is there)."
    ways = ["Run it on a machine that has them", *_with_fewer(config, usable), "or play a recording (engine.replay)"]
    return f"{first}{', '.join(ways)}; `specbench predict` needs no GPU."


def _with_fewer(config: RunConfig, usable: int) -> tuple[str, ...]:
    """How it runs on the GPUs that are here, where its ranks alone need more: heads are split by a divisor as well."""
    parallel, count = config.parallel, config.gpu.count
    if parallel.tp_size != count or on_this_host(config, count) != count:
        return ()
    ranks = max((n for n in range(1, usable + 1) if count % n == 0), default=None)
    if ranks is None:
        return ()
    return (f"here with {ranks} (--set parallel.tp_size={ranks} --set gpu.count={ranks} --out FOLDER, one of its own)",)


def on_this_host(config: RunConfig, gpus: int) -> int:
    """Of a server's GPUs: one over several nodes has its share here."""
    nodes = server_args(config).get("nnodes")
    return math.ceil(gpus / nodes) if isinstance(nodes, int) and nodes > 1 else gpus


def _visible(config: RunConfig, state: machine.GpuState) -> list[str] | None:
    return _listed(len(state.gpus), {**os.environ, **config.engine.env})


def _listed(count: int, env: Mapping[str, str]) -> list[str] | None:
    """What CUDA_VISIBLE_DEVICES leaves, of `count` GPUs; None: it is not set, so all."""
    listed = env.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return None
    # CUDA stops at the first entry that is no device.
    entries: list[str] = []
    for entry in map(str.strip, listed.split(",")):
        if not entry or entry.startswith("-") or entry in entries or (entry.isdecimal() and int(entry) >= count):
            break
        entries.append(entry)
    return entries


def _usable(count: int, listed: Sequence[str]) -> int:
    # A GPU that is cut into instances (MIG) has more entries than NVML has GPUs.
    return len(listed) if any(entry.startswith("MIG") for entry in listed) else min(count, len(listed))


def _other_cards(config: RunConfig, found: Sequence[machine.Gpu]) -> list[str]:
    try:
        wanted = load_gpu(config.gpu.name)
    except ConfigError:
        return [f"gpu.name: {config.gpu.name} is not in the GPU table, so the cards could not be compared with it"]
    others = {f"{gpu.name} ({gpu.total_bytes // MIB:,} MiB)": None for gpu in found if not _is(gpu, wanted)}
    if not others:
        return []
    meant = f"{wanted.title} ({wanted.total_mib:,} MiB)"
    return [
        (
            f"ANOTHER CARD: this machine has {', '.join(others)}; configuration and predictions here are for {meant}. "
            "Set gpu.name to the card that is there"
        )
    ]


def _is(gpu: machine.Gpu, wanted: GpuSpec) -> bool:
    """By the words of the name ('NVIDIA H200' is no H20) and by the total, which tells variants of a name apart."""
    sizeless = re.sub(r"\b\d+ GB\b", "", wanted.title)
    words = {word for word in re.findall(r"[a-z0-9]+", sizeless.lower()) if word not in _ANY_WORDS}
    has_words = words <= set(re.findall(r"[a-z0-9]+", gpu.name.lower()))
    return has_words and wanted.is_total(gpu.total_bytes)
