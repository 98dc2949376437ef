"""An answer of the planner as a page: the notebook `5_plan`, executed with the same parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..configuration.config import RunConfig
from ..errors import SpecbenchError
from ..planning.wishes import Wishes
from ..workbook.notebooks import execute, source
from ..workbook.scratch import scratch
from . import pages

PLAN_NOTEBOOK = "5_plan.ipynb"


def write_page(
    target: Path, config: RunConfig, wishes: Wishes, *, gpus: int | None, keep: list[str], draft: str | None
) -> Path:
    """One file that needs no network. SpecbenchError: the notebook fails, or the page cannot be written."""
    parameters: dict[str, Any] = {"params": None, "want": wishes.mapping, "gpus": gpus, "keep": keep, "draft": draft}
    parameters |= {section: value for section, value in config.stated().items() if value != {}}
    with scratch() as folder:
        executed = folder / PLAN_NOTEBOOK
        problem = execute(source(PLAN_NOTEBOOK), executed, parameters)
        if problem is not None:
            raise SpecbenchError(f"{target}: the notebook of the page failed: {problem}.\nThe answer itself stands.")
        page = pages.Page(title=f"{config.name}: what to set", legend=pages.LEGEND)
        return pages.write(executed, target, page)
