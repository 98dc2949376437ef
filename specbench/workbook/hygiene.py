"""House rules of the notebooks. In: a stored notebook. Out: what is wrong with it, one sentence each; empty: clean.

One question per notebook: one parameters cell first, few short cells that call the package, prose before each of them,
outputs only where nbval compares them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .notebooks import CHECKED, PARAMETERS

MAX_CODE_CELLS = 12
MAX_LINES = 8
_BANNED_TAGS = ("nbval-skip", "nbval-ignore-output", "raises-exception")
_BANNED_NODES: dict[type[ast.AST], str] = {
    ast.FunctionDef: "def",
    ast.AsyncFunctionDef: "async def",
    ast.ClassDef: "class",
    ast.For: "for",
    ast.While: "while",
    ast.Lambda: "lambda",
    ast.Try: "try",
}
#: What differs between machines or runs: clock times, absolute paths, object addresses.
_UNSTABLE = re.compile(
    r"\d\d:\d\d:\d\d|(?<![\w.])/(?:home|root|tmp|usr|var|srv|work|Users)/|0x[0-9a-f]{6,}|\d{4}-\d\d-\d\d"
)


def problems(path: Path) -> list[str]:
    """Every rule that the stored notebook breaks."""
    try:
        notebook = json.loads(path.read_text("utf-8"))
        cells = notebook["cells"]
    except (OSError, ValueError, KeyError) as error:
        return [f"{path.name}: no readable notebook ({error})"]
    return [f"{path.name}: {problem}" for problem in (*_whole(notebook, cells), *_each(cells))]


def parameter_names(path: Path) -> list[str]:
    """The names that the parameters cell assigns, in order."""
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if PARAMETERS in cell["metadata"].get("tags", ()):
            return [target.id for target, _, _ in _assignments("".join(cell["source"]))]
    return []


def _whole(notebook: Mapping[str, Any], cells: list[Mapping[str, Any]]) -> Iterator[str]:
    metadata = notebook.get("metadata", {})
    if set(metadata) - {"kernelspec", "language_info"}:
        yield f"metadata has more than kernelspec and language_info: {sorted(metadata)}"
    if not metadata.get("kernelspec", {}).get("name") or not metadata.get("language_info", {}).get("name"):
        yield "metadata lacks the kernel's or the language's name: papermill needs both"
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    if len(code) > MAX_CODE_CELLS:
        yield f"{len(code)} code cells; at most {MAX_CODE_CELLS}"
    tagged = [index for index, cell in enumerate(code) if PARAMETERS in _tags(cell)]
    if tagged != [0]:
        yield f"exactly one cell tagged {PARAMETERS}, and it is the first code cell; tagged are {tagged}"
    if not any(CHECKED in _tags(cell) for cell in code):
        yield f"no cell tagged {CHECKED}: nbval would compare nothing"
    identifiers = [cell.get("id") for cell in cells]
    if None in identifiers or len(set(identifiers)) != len(identifiers):
        yield "cells without an id, or two with the same"
    for before, cell in zip([None, *cells], cells, strict=False):
        if cell["cell_type"] == "code" and (before is None or before["cell_type"] != "markdown"):
            yield f"cell {cell.get('id')}: no markdown before it"


def _each(cells: list[Mapping[str, Any]]) -> Iterator[str]:
    for cell in cells:
        where = f"cell {cell.get('id')}"
        banned = [tag for tag in _tags(cell) if tag in _BANNED_TAGS]
        if banned:
            yield f"{where}: tagged {banned[0]}: what needs that belongs in the package or a test"
        if set(cell["metadata"]) - {"tags"}:
            yield f"{where}: metadata other than tags"
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            yield from (f"{where}: {problem}" for problem in (*_code(source, _tags(cell)), *_outputs(cell)))


def _code(source: str, tags: list[str]) -> Iterator[str]:
    lines = source.splitlines()
    # The parameters cell has a line or more per parameter: its length is that of the form.
    if PARAMETERS not in tags and len(lines) > MAX_LINES:
        yield f"{len(lines)} lines; at most {MAX_LINES}"
    if any(line.lstrip().startswith(("%", "!")) for line in lines):
        yield "a magic or a shell line"
        return
    if source.rstrip().endswith(";"):
        yield "a trailing ';' (nbval shows the value all the same); assign it instead"
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        yield f"no valid Python ({error.msg})"
        return
    for node in ast.walk(tree):
        if type(node) in _BANNED_NODES:
            yield f"'{_BANNED_NODES[type(node)]}' belongs in the package"
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "path"
            and isinstance(node.value, ast.Name)
            and node.value.id == "sys"
        ):
            yield "sys.path"
    if PARAMETERS in tags:
        yield from _parameters(source)


def _parameters(source: str) -> Iterator[str]:
    lines = source.splitlines()
    for target, value, statement in _assignments(source):
        try:
            ast.literal_eval(value)
        except ValueError:
            yield f"{target.id}: no plain literal"
        if "#" not in lines[(statement.end_lineno or statement.lineno) - 1]:
            yield f"{target.id}: no trailing comment (papermill shows it as help)"
    if len(_assignments(source)) != len(ast.parse(source).body):
        yield "the parameters cell holds more than 'name = literal'"


def _assignments(source: str) -> list[tuple[ast.Name, ast.expr, ast.Assign]]:
    return [
        (statement.targets[0], statement.value, statement)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
    ]


def _outputs(cell: Mapping[str, Any]) -> Iterator[str]:
    outputs, count = cell["outputs"], cell["execution_count"]
    if CHECKED not in _tags(cell):
        if outputs or count is not None:
            yield "stored output or execution count (run 'specbench notebooks')"
        return
    if not outputs or count != 1:
        yield f"tagged {CHECKED} without a stored output (run 'specbench notebooks')"
    for output in outputs:
        text = "".join(output.get("text", ""))
        if output.get("output_type") != "stream":
            yield "a stored verdict that is not printed text"
        unstable = _UNSTABLE.search(text)
        if unstable:
            yield f"the stored verdict holds {unstable.group()!r}, which differs between runs or machines"


def _tags(cell: Mapping[str, Any]) -> list[str]:
    return list(cell["metadata"].get("tags", ()))
