"""`specbench …` as a user runs it, within this process: a process of its own costs a second of imports.

What only a process has (a pipe whose reader is gone, a full disk, a terminal without Unicode) is tested with one.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specbench.cli import main

ROOT = Path(__file__).parent.parent


def specbench(*arguments: str | Path, stdin: bytes = b"", columns: int = 80) -> subprocess.CompletedProcess[str]:
    """In the workbook's folder, with pipes for input and output."""
    words = [os.fspath(argument) for argument in arguments]
    given, out, err = (io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") for data in (stdin, b"", b""))
    code: object = 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["specbench", *words])
        patch.setattr(sys, "stdin", given)
        patch.setenv("COLUMNS", str(columns))
        patch.chdir(ROOT)
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    out.flush()
    err.flush()
    said, complained = (stream.buffer.getvalue().decode() for stream in (out, err))
    assert code is None or isinstance(code, int), code
    return subprocess.CompletedProcess(["specbench", *words], code or 0, said, complained)
