"""Which release printed `server_args=`: releases differ by the names of their arguments, mostly by a dozen or more.

In: the printed names, and whether the line is whole. Out: the releases that have exactly these names (of a whole line),
or all of them (of one that was cut or shortened by hand). Data: `data/sglang_fields.txt`, of all 25 releases from 0.5.6
to 0.5.23. The names of 20 are all different, so a whole line names a release; five post releases have their release's.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass

from ....paths import DATA
from ....versions import version_key

#: Fewer names than any release prints: a line that somebody shortened.
_LEAST_WHOLE = 280
#: A development build or a fork has names of its own; with more than these it is like no release.
_MOST_DIFFERENT = 40


#: Release -> its post release, whose arguments have the same names, and whose sizing is the same.
POST_RELEASES = {f"0.5.{minor}": f"0.5.{minor}.post1" for minor in (8, 10, 12, 13, 15)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What the names tell of the release."""

    exact: str | None  # the release with exactly these names
    fitting: tuple[str, ...]  # releases that have all of these names, oldest first; none: nothing is told
    nearest: str | None = None  # of a whole line with other names: the release with most of them in common
    different: int = 0  # names in which it differs from that release


def release_of(names: Collection[str], *, whole: bool) -> Release:
    """`whole`: the line has its closing bracket."""
    printed = frozenset(names)
    tables = _names()
    fitting = tuple(version for version, known in tables.items() if printed <= known)
    if not whole or len(printed) < _LEAST_WHOLE:
        return Release(exact=None, fitting=fitting if len(fitting) < len(tables) else ())
    different = {version: len(printed ^ known) for version, known in tables.items()}
    nearest = min(different, key=lambda version: (different[version], version_key(version)))
    if different[nearest] == 0:
        return Release(exact=nearest, fitting=(nearest,))
    if different[nearest] > _MOST_DIFFERENT:
        return Release(exact=None, fitting=())
    return Release(exact=None, fitting=(), nearest=nearest, different=different[nearest])


@functools.cache
def _names() -> dict[str, frozenset[str]]:
    """release -> its names, oldest first."""
    text = (DATA / "sglang_fields.txt").read_text(encoding="utf-8")
    rows = [row.split() for row in text.splitlines() if not row.startswith("#")]
    releases = sorted({version for _, *bounds in rows for version in bounds}, key=version_key)
    place = {version: at for at, version in enumerate(releases)}
    return {
        version: frozenset(name for name, first, last in rows if place[first] <= place[version] <= place[last])
        for version in releases
    }
