"""What SGLang's server arguments are when nobody sets them, by release. Data: `data/sglang_defaults.txt`.

Only defaults that are not off (None, False, empty, auto) are there; `python -m oracle.defaults` reads them from the
sources of the releases.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...paths import DATA
from ...versions import version_key


class _Row(NamedTuple):
    name: str
    first: str
    last: str
    value: Any


def defaults_of(earliest: str | None, latest: str | None) -> Mapping[str, Any]:
    """Argument -> the default that it has in every release that it may be, of both ends included; None: open.

    Of a release that was not read the two that were read around it have to agree; later than the last one nothing is
    known. What is not here is off, or not known.
    """
    releases, rows = _table()
    before = [one for one in releases if earliest is None or version_key(one) <= version_key(earliest)]
    after = [one for one in releases if latest is not None and version_key(one) >= version_key(latest)]
    if not after or (not before and earliest is not None):
        return {}
    low, high = version_key(releases[0] if earliest is None else before[-1]), version_key(after[0])
    return {row.name: row.value for row in rows if version_key(row.first) <= low and version_key(row.last) >= high}


@functools.cache
def _table() -> tuple[tuple[str, ...], tuple[_Row, ...]]:
    """The releases that were read, oldest first, and the rows."""
    text = (DATA / "sglang_defaults.txt").read_text(encoding="utf-8")
    rows = []
    for line in text.splitlines():
        if not line.startswith("#"):
            name, first, last, value = line.split(" ", 3)
            rows.append(_Row(name, first, last, ast.literal_eval(value)))
    releases = text.partition(" of: ")[2].partition(".\n")[0].replace("\n# ", " ").split(", ")
    return tuple(releases), tuple(rows)
