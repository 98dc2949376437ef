"""Which wording which version uses: the files of the versions, chained.

A version's file holds only the forms whose wording changed. The format of a known version is everything up to the
nearest earlier file; for a log of unknown version all wordings are tried, and those that fit narrow the version down.
To add a version: one file beside this one, its line in `FILES` and in `EXAMINED`, a log with its expected figures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from ....versions import nearest_earlier, version_key
from ..form import Form
from . import (
    extras,
    v0_5_6,
    v0_5_7,
    v0_5_8,
    v0_5_9,
    v0_5_10,
    v0_5_11,
    v0_5_12,
    v0_5_13,
    v0_5_14,
    v0_5_15,
    v0_5_16,
    v0_5_17,
    v0_5_18,
    v0_5_19,
    v0_5_20,
    v0_5_21,
    v0_5_22,
    v0_5_23,
)

FILES = {
    "0.5.6": v0_5_6,
    "0.5.7": v0_5_7,
    "0.5.8": v0_5_8,
    "0.5.9": v0_5_9,
    "0.5.10": v0_5_10,
    "0.5.11": v0_5_11,
    "0.5.12": v0_5_12,
    "0.5.13": v0_5_13,
    "0.5.14": v0_5_14,
    "0.5.15": v0_5_15,
    "0.5.16": v0_5_16,
    "0.5.17": v0_5_17,
    "0.5.18": v0_5_18,
    "0.5.19": v0_5_19,
    "0.5.20": v0_5_20,
    "0.5.21": v0_5_21,
    "0.5.22": v0_5_22,
    "0.5.23": v0_5_23,
}

#: Versions whose wording was looked at; a range of versions is told in these.
EXAMINED = tuple(FILES)

VersionRange = tuple[str | None, str | None]  # earliest and latest; None: open


@dataclass(frozen=True, slots=True)
class Dated:
    """A form with the versions that print it. `since` None: older than the first file, too."""

    form: Form
    since: str | None
    until: str | None  # None: the latest file still has it


@cache
def history() -> tuple[Dated, ...]:
    """Every wording that any version used, the newest first, then the lines that no version ties down."""
    dated: list[Dated] = []
    current: dict[str, tuple[Form, str | None]] = {}
    for version, file in FILES.items():
        before = EXAMINED[EXAMINED.index(version) - 1] if dated or current else None
        for name in (*file.GONE, *file.FORMS):
            if name in current:
                form, since = current.pop(name)
                dated.append(Dated(form, since, before))
        for name, form in file.FORMS.items():
            current[name] = (form, version if current and before else None)
    dated.extend(Dated(form, since, None) for form, since in current.values())
    newest_first = sorted(dated, key=lambda entry: version_key(entry.since or "0.0.1"), reverse=True)
    return (*newest_first, *(Dated(form, None, None) for form in extras.FORMS.values()))


def forms_of(version: str) -> dict[str, Form]:
    """The wordings of one version: those of the nearest earlier file, with what that inherits."""
    last = nearest_earlier(version, EXAMINED) or EXAMINED[0]
    forms: dict[str, Form] = {}
    for known, file in FILES.items():
        for name in file.GONE:
            forms.pop(name, None)
        forms.update(file.FORMS)
        if known == last:
            break
    return forms


@cache
def spoken_by(version: str) -> frozenset[Form]:
    """All forms that a server of this version may print, those that no version ties down included."""
    return frozenset((*forms_of(version).values(), *extras.FORMS.values()))


def heads() -> tuple[str, ...]:
    """How the lines of all forms begin, without those that begin like a shorter one."""
    every = {head for dated in history() for head in dated.form.heads}
    return tuple(sorted(h for h in every if not any(h != other and h.startswith(other) for other in every)))


def union(ranges: Iterable[VersionRange]) -> VersionRange:
    """The smallest range that holds all of `ranges`: one line can be worded alike by several forms."""
    every = list(ranges)
    since = None if any(low is None for low, _ in every) else min((low or "" for low, _ in every), key=version_key)
    until = None if any(high is None for _, high in every) else max((high or "" for _, high in every), key=version_key)
    return since, until


def intersection(ranges: Iterable[VersionRange]) -> VersionRange:
    """What all of `ranges` allow. (None, None) when they contradict each other: a fork, or several servers' lines."""
    every = list(ranges)
    since = max((low for low, _ in every if low), key=version_key, default=None)
    until = min((high for _, high in every if high), key=version_key, default=None)
    if since and until and version_key(since) > version_key(until):
        return None, None
    return since, until
