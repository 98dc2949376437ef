"""A replay plays the server that was recorded, so its configuration must be that server's.

In: the configuration as asked, and the record that it replays. Out: the configuration as it was recorded, with what was
not stated filled in from the record, and notes about it. ConfigError when a stated key that decides what a server does
(version, model, GPUs, parallelism, speculation, memory) is not as recorded: the figures of one configuration would be
passed off as those of another.

The non-obvious thing: a record states what was given on the command line, the engine filled in the rest. A key that the
record leaves open counts as recorded with the value that the engine printed for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..configuration.config import RunConfig
from ..engines.sglang.flags import spellings_of
from ..engines.sglang.given import arg_name
from ..engines.sglang.logs import read as read_log
from ..errors import ConfigError
from ..lifecycle.differences import OPEN, differing, flat, in_words
from ..paths import resolve
from ..records.record import RunRecord

#: Keys that decide what a server does. A section stands for all its keys.
_DECIDING = ("engine.version", "model", "gpu", "parallel", "speculative", "memory", "workload.simulate_acc_len")
#: Further keys that describe the recorded server; a difference in them is told, not refused.
_DESCRIBING = ("engine.sizing", "engine.args", "engine.env")
#: Variables that say where things lie on a machine: they describe it, not the server.
_PLACES = ("PYTHONPATH", "LD_LIBRARY_PATH", "PATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsRecorded:
    """What a replay runs with."""

    record: RunRecord
    config: RunConfig
    taken: Mapping[str, Any]  # dotted key -> value of the record, where the params state none
    differences: Mapping[str, tuple[Any, Any]]  # dotted key -> (asked, recorded), of keys that decide nothing here

    @property
    def notes(self) -> tuple[str, ...]:
        """For whoever reads the figures; empty when the params say what was recorded."""
        found = []
        if self.taken:
            told = ", ".join(_told(key, value) for key, value in self.taken.items())
            found.append(f"not in the params, so taken from the recording: {told}")
        found += [
            f"{key}: {in_words(mine)} is asked, {in_words(theirs)} was recorded; in a replay it has no effect"
            for key, (mine, theirs) in self.differences.items()
        ]
        return tuple(found)


def as_recorded(asked: RunConfig, record: RunRecord) -> AsRecorded:
    """`asked` made whole from the record that it replays. ConfigError (two lines) when it states another server."""
    stated, whole, recorded = (
        flat(sections) for sections in (asked.stated(), asked.to_sections(), record.config.to_sections())
    )
    taken: dict[str, Any] = {}
    wrong: dict[str, tuple[Any, Any]] = {}
    for key in _keys(_DECIDING, recorded):
        mine, theirs = stated.get(key), recorded[key]
        if mine in OPEN:
            if whole[key] != theirs:
                taken[key] = theirs
        elif mine != theirs:
            wrong[key] = (mine, theirs)
    if wrong:
        _refuse(asked, _without_the_engines_choice(wrong, record))
    differences: dict[str, tuple[Any, Any]] = {}
    for key in _DESCRIBING:
        mine, theirs = stated.get(key), recorded[key]
        if isinstance(theirs, dict):
            merged = _merged(key, mine or {}, without_places(theirs), differences)
            if len(merged) > len(mine or {}):
                taken[key] = merged
        elif mine is None and theirs is not None:
            taken[key] = theirs
        elif mine is not None and mine != theirs:
            differences[key] = (mine, theirs)
    config = asked.replace(taken) if taken else asked
    return AsRecorded(record=record, config=config, taken=taken, differences=differences)


def whole(asked: RunConfig) -> RunConfig:
    """The configuration that a run of `asked` has: made whole from the record that it replays, if it replays one."""
    if asked.engine.replay is None:
        return asked
    return replayed(asked).config


def replayed(asked: RunConfig) -> AsRecorded:
    """What a replay by `asked` runs with. RecordError when the record that it names is not there."""
    assert asked.engine.replay is not None
    return as_recorded(asked, RunRecord.open(resolve(asked.engine.replay, kind="engine.replay")))


def _refuse(asked: RunConfig, wrong: Mapping[str, tuple[Any, Any]]) -> None:
    if not wrong:
        return
    raise ConfigError(
        f"{differing(wrong, 'recorded')} (engine.replay: {asked.engine.replay}).\n"
        f"A replay plays the server that was recorded: use {'that value' if len(wrong) == 1 else 'those values'}, or "
        "leave engine.replay out."
    )


def _without_the_engines_choice(wrong: Mapping[str, tuple[Any, Any]], record: RunRecord) -> dict[str, tuple[Any, Any]]:
    """Without the keys that were left to the recorded engine and that it set to what is asked now."""
    if not any(theirs in OPEN for _, theirs in wrong.values()):
        return dict(wrong)
    arguments = read_log(record.log_path, version=record.config.engine.version).server_args or {}
    left: dict[str, tuple[Any, Any]] = {}
    for key, (mine, theirs) in wrong.items():
        chosen = _printed(arguments, key) if theirs in OPEN else None
        if mine != chosen:
            left[key] = (mine, theirs if chosen is None else chosen)
    return left


def _printed(arguments: Mapping[str, Any], key: str) -> Any:
    """The value in the engine's own list of arguments; None: not set there either."""
    names = [arg_name(flag) for flag in spellings_of(key)]
    return next((arguments[known] for known in names if arguments.get(known) is not None), None)


def without_places(theirs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in theirs.items() if name not in _PLACES}


def _merged(
    key: str, mine: Mapping[str, Any], theirs: Mapping[str, Any], differences: dict[str, tuple[Any, Any]]
) -> dict[str, Any]:
    """The recorded flags or variables under what is asked; what differs goes into `differences`."""
    # Flags may be written with dashes or underscores; names of variables hold no dashes.
    spelled = {name.replace("-", "_"): name for name in theirs}
    merged = dict(theirs)
    for name, value in mine.items():
        known = spelled.get(name.replace("-", "_"))
        if known is not None:
            del merged[known]
        if name not in _PLACES and (known is None or theirs[known] != value):
            differences[f"{key}.{name}"] = (value, None if known is None else theirs[known])
    return merged | dict(mine)


def _keys(names: tuple[str, ...], known: Mapping[str, Any]) -> Iterator[str]:
    return (key for key in known if key in names or key.partition(".")[0] in names)


def _told(key: str, value: Any) -> str:
    return f"{key} ({len(value)} entries)" if isinstance(value, dict) else f"{key} {in_words(value)}"
