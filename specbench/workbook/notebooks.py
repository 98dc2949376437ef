"""Notebooks as files: execute one with parameters, refresh the stored verdicts, name what breaks the house rules.

A stored notebook has outputs only on cells tagged `nbval-check-output`, with `execution_count` 1: nbval compares
exactly those. `refresh` is the only way by which outputs enter the repository, and running it twice changes no byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import SpecbenchError
from ..lifecycle import time_limit
from ..paths import RUNS, workbook_root
from .progress import VARIABLE
from .scratch import scratch

CHECKED = "nbval-check-output"
PARAMETERS = "parameters"
#: A kernel logs to the terminal of whoever started it, among other things that it was interrupted when it is ended.
_QUIET_KERNEL = ["--log-level=CRITICAL"]
#: A kernel that is interrupted in a run ends its server first. Half of it passes before Jupyter sends signals.
_KERNEL_ENDING_S = 60.0
#: Where Jupyter and IPython look for what a person has set up.
_OWN_FOLDERS = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
_OWN_KERNEL: Mapping[str, str | None] = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "JUPYTER_CONFIG_PATH": None,
    "JUPYTER_PATH": None,
    "PYTHONSTARTUP": None,
    # Of the notebook in which somebody calls this: nobody looks at the kernel that is started here.
    "JPY_SESSION_NAME": None,
}
#: sun_path holds 108 bytes on Linux, 104 on macOS, the final zero included.
_MAX_SOCKET_PATH = 103
NAMES = ("1_predict.ipynb", "2_run.ipynb", "3_diagnose.ipynb", "4_analysis.ipynb", "5_plan.ipynb")


def source(name: str) -> Path:
    """The notebook `name` of the workbook. SpecbenchError: this is not a workbook."""
    path = workbook_root() / "notebooks" / name
    if not path.is_file():
        raise SpecbenchError(
            f"notebooks/{name}: not found in {workbook_root()}.\n"
            "Run specbench from its workbook: the folder with notebooks/ and params/."
        )
    return path


def execute(
    notebook: Path,
    output: Path,
    parameters: Mapping[str, Any],
    *,
    progress: Path | None = None,
    timeout_s: int | None = None,
    until_s: float | None = None,
) -> str | None:
    """Run a notebook by papermill; `output` is written whatever happens. Returns the error that stopped it, or None.

    `progress`: file to which a run notebook reports its phases. `timeout_s`: of one cell; None: no limit.
    `until_s`: when a run notebook must have ended its server (see `time_limit`); None: no limit.
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError

    told: dict[str, str | None] = {} if progress is None else {VARIABLE: str(progress)}
    told[time_limit.VARIABLE] = None if until_s is None else repr(until_s)
    try:
        with warnings.catch_warnings(), _environment(told), kernel_settings() as settings:
            warnings.simplefilter("ignore")  # papermill and jupyter_client warn about their own future
            papermill.execute_notebook(
                str(notebook),
                str(output),
                parameters=dict(parameters),
                progress_bar=False,
                log_output=False,
                execution_timeout=timeout_s,
                config=settings,
                extra_arguments=_QUIET_KERNEL,
            )
    except PapermillExecutionError as error:
        return f"{error.ename}: {error.evalue}"
    except Exception as error:  # a kernel that dies raises nbclient's and jupyter_client's own errors
        _drop_truncated(output)
        return f"{type(error).__name__}: {error}"
    return None


def _drop_truncated(notebook: Path) -> None:
    """Remove a file that is no whole notebook: a full disk leaves the beginning of one."""
    with contextlib.suppress(OSError):
        try:
            json.loads(notebook.read_bytes())
        except ValueError:
            notebook.unlink()


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Environment variables for the kernels that start in this block (a process executes one notebook at a time);
    None: not set."""
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set(changes)
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def kernel_settings() -> Iterator[Any]:
    """Configuration for a kernel that talks over Unix sockets in a private folder, where that is possible.

    Settings of the person who runs it (start-up files, profiles, kernels of the same name, a backend for figures) are
    theirs, not of a page that has to look the same for everyone: the kernel has empty folders in their place.

    jupyter_client picks free TCP ports before the kernel binds them, and remembers them within one process only: of
    several kernels (and servers) that start at the same moment two may get the same port, and one never answers.
    """
    from traitlets.config import Config

    with scratch() as folder:
        base = str(folder / "kernel")
        short = os.name == "posix" and len(os.fsencode(base)) <= _MAX_SOCKET_PATH - len("-10")
        with _environment({**_OWN_KERNEL, **{name: str(folder / name.lower()) for name in _OWN_FOLDERS}}):
            place = {"transport": "ipc", "ip": base} if short else {}
            yield Config({"KernelManager": {"shutdown_wait_time": _KERNEL_ENDING_S, **place}})


def refresh(path: Path) -> bytes:
    """The notebook's bytes after running it with its default parameters in its own folder; nothing is written, and
    the runs that it makes go to a folder that is removed.

    SpecbenchError when a cell fails: a notebook that does not run has no verdict to store.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    try:
        with warnings.catch_warnings(), kernel_settings() as settings, _passing_runs():
            warnings.simplefilter("ignore")
            NotebookClient(
                notebook, timeout=600, resources=folder, config=settings, extra_arguments=_QUIET_KERNEL
            ).execute()
    except CellExecutionError as error:
        raise SpecbenchError(
            f"{path.name}: a cell fails with the default parameters.\n{error.ename}: {error.evalue}"
        ) from None
    return stored(notebook)


@contextmanager
def _passing_runs() -> Iterator[None]:
    """Kernels that start in this block put runs without a folder of their own into one that does not stay."""
    with scratch() as folder:
        runs = folder / "runs"
        runs.mkdir()
        with _environment({RUNS: str(runs)}):
            yield


def stored(notebook: Mapping[str, Any]) -> bytes:
    """The canonical form of an executed notebook: ids, tags, names of kernel and language, checked outputs."""
    metadata = notebook["metadata"]
    kernel = metadata["kernelspec"]
    cells = [_stored_cell(cell) for cell in notebook["cells"]]
    document = {
        "cells": cells,
        "metadata": {
            "kernelspec": {name: kernel[name] for name in ("display_name", "language", "name") if name in kernel},
            "language_info": {"name": metadata["language_info"]["name"]},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return (json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


def _stored_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    tags = list(cell["metadata"].get("tags", []))
    kept: dict[str, Any] = {
        "cell_type": cell["cell_type"],
        "id": cell["id"],
        "metadata": {"tags": tags} if tags else {},
        "source": _lines(cell["source"]),
    }
    if cell["cell_type"] == "code":
        checked = CHECKED in tags
        kept["execution_count"] = 1 if checked else None
        kept["outputs"] = [_stored_output(output) for output in cell["outputs"]] if checked else []
    return kept


def _stored_output(output: Mapping[str, Any]) -> dict[str, Any]:
    if output["output_type"] != "stream":
        raise SpecbenchError(
            f"a cell tagged {CHECKED} must print plain text; it gave {output['output_type']}.\nUse print(...)."
        )
    return {"name": output["name"], "output_type": "stream", "text": _lines(output["text"])}


def _lines(text: str | list[str]) -> list[str]:
    return ("".join(text) if isinstance(text, list) else text).splitlines(keepends=True)
