"""What notebook cells need from the kernel they run in: the parameters cell, checked.

papermill only warns about a parameter that the notebook does not know, and goes on. Here it is an error: the names that
papermill injected are read from the kernel's own input history.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..configuration.config import SECTIONS
from ..configuration.explain import listed, near_miss
from ..errors import ConfigError
from ..paths import expanded

#: papermill heads the cell that it injects with this comment.
_INJECTED = "# Parameters\n"


def sections(namespace: Mapping[str, Any], *further: str) -> dict[str, Any]:
    """`params` and the sections as the parameters cell (and papermill) left them. Call it with `globals()`.

    What `params.load_sections` takes. `further`: the notebook's other parameters, known but not returned.
    ConfigError: an injected name is unknown.
    """
    names = ("params", *SECTIONS)
    reject_unknown(namespace, (*names, *further))
    return {name: namespace[name] for name in names}


def folder(path: str | None) -> Path | None:
    """A folder that need not exist yet, against the working directory. None stays None."""
    return None if path is None else expanded(Path(path)).resolve()


def reject_unknown(namespace: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """ConfigError when papermill injected a name that is not in `allowed`. Nothing happens outside papermill."""
    known = tuple(allowed)
    for source in namespace.get("In", ()):
        if not source.startswith(_INJECTED):
            continue
        for name in _assigned(source):
            if name not in known:
                raise ConfigError(
                    f"parameters: {name}: no such key{near_miss(name, known)}.\nAllowed here: {listed(known)}."
                )


def _assigned(source: str) -> list[str]:
    return [
        target.id
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    ]
