"""Why a record gives a table no row. In: a record's name and the text of an error. Out: both for people, a line each.

The folder of a damaged record names it, and is named in the error: such a name may hold newlines and escapes, and what
is said here becomes a comment of a YAML file.
"""

from __future__ import annotations

from ..logclean import on_one_line


def without_row(name: str, why: str) -> tuple[str, str]:
    """The name, and of the reason what is before its advice."""
    return on_one_line(name), on_one_line(why.partition("\n")[0].removesuffix("."))
