"""A diagnosis as a page: the notebook `3_diagnose`, executed with the same record or log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..diagnose.told import Told
from ..errors import SpecbenchError
from ..paths import resolve
from ..workbook.notebooks import execute, source
from ..workbook.scratch import scratch
from . import pages
from .report import DIAGNOSIS_NOTEBOOK


def write_page(
    target: Path, name: str, sources: Sequence[Path], *, told: Told | None = None, against: str | None = None
) -> Path:
    """One file that needs no network. `name`: as the diagnosis is called. SpecbenchError: the notebook fails, or the
    page cannot be written.
    """
    paths = [str(resolve(path, kind="record or log")) for path in sources]
    parameters: dict[str, Any] = {
        "record": paths[0] if len(paths) == 1 else paths,
        "told": _parameters(told),
        "against": None if against is None else str(resolve(against, kind="record or log")),
    }
    with scratch() as folder:
        executed = folder / DIAGNOSIS_NOTEBOOK
        problem = execute(source(DIAGNOSIS_NOTEBOOK), executed, parameters)
        if problem is not None:
            raise SpecbenchError(f"{target}: the notebook of the page failed: {problem}.\nThe diagnosis itself stands.")
        return pages.write(executed, target, pages.Page(title=f"{name}: what happened, and what to change"))


def _parameters(told: Told | None) -> dict[str, Any] | None:
    """What was told, as the notebook's parameter; None: nothing."""
    if told is None or told == Told():
        return None
    given: dict[str, Any] = {"model": told.model, "gpu": told.gpu, "version": told.version, "server": told.server}
    given |= {"arguments": dict(told.arguments), "env": dict(told.env)}
    return {name: value for name, value in given.items() if value}
