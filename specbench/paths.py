"""Where things are, whatever the working directory is.

papermill runs a notebook in the caller's directory, JupyterLab and nbval in the notebook's own: relative paths are
therefore tried against the working directory first and against the workbook's root second.
"""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ConfigError

DATA = Path(__file__).parent / "data"
#: Environment variable: the folder for runs that name none, instead of `runs/` of the workbook. Checks set it, so that
#: executing the notebooks leaves nothing in the workbook.
RUNS = "SPECBENCH_RUNS"


def workbook_root(start: Path | None = None) -> Path:
    """The folder that holds `notebooks/` and `params/`: the nearest one above `start`, else the source checkout.

    Falls back to the working directory when specbench is installed away from any workbook.
    """
    origin = (start or Path.cwd()).resolve()
    for folder in (origin, *origin.parents, Path(__file__).resolve().parent.parent):
        if (folder / "notebooks").is_dir() and (folder / "params").is_dir():
            return folder
    return origin


def runs_root() -> Path:
    """Where runs go that name no folder: what SPECBENCH_RUNS says, else `runs/` of the workbook."""
    asked = os.environ.get(RUNS)
    return Path(asked).expanduser().resolve() if asked else workbook_root() / "runs"


def resolve(path: str | Path, *, kind: str = "path") -> Path:
    """The existing file or folder that a user means by `path`. ConfigError (two lines) when there is none."""
    asked = Path(path).expanduser()
    candidates = [asked] if asked.is_absolute() else [Path.cwd() / asked, workbook_root() / asked]
    for candidate in candidates:
        if candidate.exists():
            return candidate.resolve()
    tried = " and ".join(str(candidate.parent) for candidate in dict.fromkeys(candidates))
    raise ConfigError(f"{kind}: {str(path)!r} does not exist.\nLooked in {tried}.")
