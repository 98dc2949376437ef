"""What a replay says of itself under /server_info, and how whoever attaches to one reads it.

In: the record that is played. Out: an object under `specbench_replay`, which no engine has; read back as a `Played`.
What comes from a server is data: a value of a wrong shape counts as not told, but the server counts as a replay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..records.record import RunRecord

KEY = "specbench_replay"
INSTANT = "instant"
_MOST_NOTES, _MOST_CHARACTERS = 40, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A record that somebody else's server plays."""

    name: str | None  # of the record; None: not told
    sha256: str | None
    speed: float | None  # times as fast as recorded; None: at once
    notes: tuple[str, ...]  # of the record
    machine: Mapping[str, Any] | None  # on which it was recorded
    emulation: Mapping[str, Any] | None
    simulated_acceptance: Mapping[str, Any] | None

    @property
    def words(self) -> str:
        """'the record dflash_r8, at once'."""
        if self.name is None:
            return "a record that it does not name"
        return f"the record {self.name}, {pace(self.speed)}"


#: A server that says of its answers that they are replayed, and nothing of itself.
UNTOLD = Played(name=None, sha256=None, speed=1.0, notes=(), machine=None, emulation=None, simulated_acceptance=None)


def pace(speed: float | None) -> str:
    return "at once" if speed is None else f"{speed:g} times as fast as recorded"


def told(record: RunRecord, speed: float | None) -> dict[str, Any]:
    """What the replay of `record` says; `speed` None: at once."""
    return {
        "record": record.name,
        "sha256": record.sha256(),
        "speed": INSTANT if speed is None else speed,
        "notes": list(record.status.notes),
        "machine": record.env.get("machine"),
        "emulation": record.env.get("emulation"),
        "simulated_acceptance": record.env.get("simulated_acceptance"),
    }


def played(server_info: Mapping[str, Any]) -> Played | None:
    """None: the server is no replay."""
    if KEY not in server_info:
        return None
    said = _mapping(server_info[KEY]) or {}
    notes = said.get("notes")
    return Played(
        name=_text(said.get("record")),
        sha256=_text(said.get("sha256")),
        speed=_speed(said.get("speed")),
        notes=tuple(filter(None, map(_text, notes[:_MOST_NOTES]))) if isinstance(notes, list) else (),
        machine=_mapping(said.get("machine")),
        emulation=_mapping(said.get("emulation")),
        simulated_acceptance=_mapping(said.get("simulated_acceptance")),
    )


def _speed(said: Any) -> float | None:
    """Not told: as fast as recorded, so that times stay what they were measured to be."""
    if said == INSTANT:
        return None
    number = isinstance(said, (int, float)) and not isinstance(said, bool)
    return float(said) if number and math.isfinite(said) and said > 0 else 1.0


def _text(said: Any) -> str | None:
    return said[:_MOST_CHARACTERS] if isinstance(said, str) and said else None


def _mapping(said: Any) -> Mapping[str, Any] | None:
    return said if isinstance(said, dict) else None
