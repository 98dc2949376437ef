"""Which configurations of a campaign are still to run in a folder that may hold earlier runs of it. Starts nothing.

In: the configurations as they are asked now (without what a machine adds), and the folder. Out: a `Standing` for each.
Everything is read from `campaign.json` and the records: the folder may have been copied from another machine.

A configuration is the same when everything that decides a result is; where engines and models lie, addresses, time-outs
and the pace of a replay decide nothing. A run that was interrupted, or ended for a deadline, is no result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from ..configuration.config import RunConfig
from ..errors import ConfigError, RecordError, SpecbenchError
from ..lifecycle.time_limit import DEADLINE
from ..reading.outcome import in_words, outcome_of, tally
from ..records import listing
from ..records.folders import RECORD
from ..records.record import RunRecord
from ..running.recorded import whole
from ..terms import Outcome
from ..units import counted

#: Keys that say how and where a server is reached, not what it is.
_PLACES = frozenset(
    f"engine.{key}"
    for key in (
        *("python", "model_paths", "host", "port", "ready_timeout_s", "replay_speed"),
        *("attach_log", "api_key_env"),
    )
)
#: A failure is a result: it is repeated only when that is asked for.
FAILED: frozenset[Outcome] = frozenset({"refused", "crashed", "timed_out", "unanswered"})
_MOST_TOLD = 3
#: Keys that say on what a configuration runs.
_HARDWARE = ("gpu.", "parallel.")

State = Literal["new", "interrupted", "damaged", "cut short", "changed", "retried", "done", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where one configuration stands."""

    config: RunConfig
    state: State
    why: str = ""  # what a person should know before it runs (or does not); "": nothing
    folder: Path | None = None  # of its newest run; None: it has none

    @property
    def to_run(self) -> bool:
        return self.state not in ("done", "failed", "skipped")


def standings(configs: Iterable[RunConfig], root: Path, *, retry_failed: bool = False) -> tuple[Standing, ...]:
    """Of every configuration, in the given order. RecordError when the folder's list cannot be read."""
    known = listing.read(root)
    if known is None:
        return tuple(Standing(config=config, state="new") for config in configs)
    return tuple(_standing(config, known.entry(config.name), root, retry_failed) for config in configs)


def refuse_other_gpus(configs: Sequence[RunConfig], root: Path) -> None:
    """A folder is of one campaign. ConfigError (two lines): everything that ran in it ran on other GPUs or with other
    ranks than are asked now, so that half of it would be of the one and half of the other.

    A single configuration may be tried on other GPUs, each in a run folder of its own; so may one of several points.
    """
    known = listing.read(root) if len(configs) > 1 else None
    if known is None:
        return
    changes: dict[str, list[str]] = {}
    for config in configs:
        entry = known.entry(config.name)
        if entry.asked is None or entry.folder is None or listing.folder_in(root, entry.folder) is None:
            continue
        try:
            then, now = identity(RunConfig.model_validate(entry.asked)), identity(config)
        except ValidationError:
            continue
        keys = [key for key in now if key.startswith(_HARDWARE) and now[key] != then.get(key)]
        changes[config.name] = [f"{key}: {_value(then.get(key))}, now {_value(now[key])}" for key in keys]
    if changes and all(changes.values()):
        name, told = next(iter(changes.items()))
        others = "" if len(changes) == 1 else f" and {counted(len(changes) - 1, 'other')}"
        raise ConfigError(
            f"{root}: holds runs of {name}{others} on other GPUs ({'; '.join(told[:_MOST_TOLD])}).\n"
            "Give these a folder of their own (--out FOLDER), or ask for what ran there."
        )


def _standing(config: RunConfig, entry: listing.Listed, root: Path, retry_failed: bool) -> Standing:
    folder = None if entry.folder is None else listing.folder_in(root, entry.folder)
    if folder is None:
        return Standing(config=config, state="new")
    try:
        return _of_record(config, entry, folder, retry_failed)
    except RecordError as error:
        if (folder / RECORD).is_dir():
            why = f"{config.name}: its record is damaged ({error.clause}): it runs again"
            return Standing(config=config, state="damaged", why=why, folder=folder)
        why = f"{config.name}: its run was interrupted and left no record: it runs again"
        return Standing(config=config, state="interrupted", why=why, folder=folder)


def _of_record(config: RunConfig, entry: listing.Listed, folder: Path, retry_failed: bool) -> Standing:
    """RecordError: what decides cannot be read."""
    record = RunRecord.open(folder)
    changes = list(_changes(config, entry.asked, record))
    if changes:
        more = f", and {len(changes) - _MOST_TOLD} more" if len(changes) > _MOST_TOLD else ""
        told = f"{config.name}: changed since it ran ({', '.join(changes[:_MOST_TOLD])}{more}): it runs anew"
        return Standing(config=config, state="changed", why=told, folder=folder)
    if record.status.cut_short:
        deadline = record.status.cut_short == DEADLINE
        happened = "was ended for a deadline" if deadline else "another process took its port while it started"
        why = f"{config.name}: {happened}: it runs again"
        return Standing(config=config, state="cut short", why=why, folder=folder)
    outcome = _outcome(record)
    if entry.waiting and outcome in FAILED:  # an earlier call was told to retry it, and did not come to it
        return Standing(config=config, state="retried", why=f"{config.name}: is tried again", folder=folder)
    if outcome not in FAILED:
        return Standing(config=config, state="done", why=f"{config.name}: done ({in_words(outcome)})", folder=folder)
    if retry_failed:
        why = f"{config.name}: {in_words(outcome)}, is tried again"
        return Standing(config=config, state="retried", why=why, folder=folder)
    return Standing(config=config, state="failed", why=f"{config.name}: {in_words(outcome)}, stays so", folder=folder)


def _outcome(record: RunRecord) -> Outcome:
    """How it ended, as far as that decides whether it failed: a server that served fewer than asked did not."""
    sent, answered = tally(record.requests())
    return outcome_of(record.status.status, asked=None, resolved=None, sent=sent, answered=answered)


def _changes(config: RunConfig, asked: Mapping[str, Any] | None, record: RunRecord) -> Iterator[str]:
    """What differs from what was asked then, as 'memory.max_running_requests: 4, now 8'."""
    if asked is None:  # listed by an earlier specbench: the record tells, with what the machine added
        then, now = identity(record.config), identity(_whole(config) or config)
        for key in [key for key in then if key.startswith("engine.env.") and key not in now]:
            del then[key]
    else:
        try:
            then, now = identity(RunConfig.model_validate(asked)), identity(config)
        except ValidationError:
            yield "what was asked then cannot be read"
            return
    for key in dict.fromkeys((*now, *then)):
        if now.get(key) != then.get(key):
            yield f"{key}: {_value(then.get(key))}, now {_value(now.get(key))}"


def identity(config: RunConfig) -> dict[str, Any]:
    """The values that decide a result, by dotted key, defaults included; of flags and variables one key each."""
    flat: dict[str, Any] = {}
    for section, values in config.to_sections().items():
        if not isinstance(values, dict):
            flat[section] = values
            continue
        for key, value in values.items():
            dotted = f"{section}.{key}"
            if dotted in _PLACES:
                continue
            if isinstance(value, dict):
                flat |= {f"{dotted}.{name}": inner for name, inner in value.items()}
            else:
                flat[dotted] = value
    return flat


def asked(config: RunConfig) -> dict[str, Any]:
    """The sections that are listed with a run: what was stated, without places."""
    stated = config.stated()
    stated["engine"] = {key: value for key, value in stated["engine"].items() if f"engine.{key}" not in _PLACES}
    return stated


def _whole(config: RunConfig) -> RunConfig | None:
    """With what the recording fills in; None: there is no such recording (any more)."""
    try:
        return whole(config)
    except SpecbenchError:
        return None


def _value(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
