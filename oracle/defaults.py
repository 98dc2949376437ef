"""The defaults of SGLang's server arguments, read from the sources of its releases: data/sglang_defaults.txt.

Example: python -m oracle.defaults oracle/.venv/releases > specbench/data/sglang_defaults.txt

Nothing is imported or run: class ServerArgs (sglang/srt/server_args.py) and, from 0.5.20, the namespaces that it is put
together from (sglang/srt/arg_groups/fields/) are parsed. A default that is no literal, nor a constant of the same file,
is not written: it is not known.
"""

from __future__ import annotations

import argparse
import ast
import operator
import textwrap
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from specbench.versions import version_key

_SOURCES = ("sglang/srt/server_args.py", "sglang/srt/arg_groups/fields/*.py")
_MADE = {"list": [], "dict": {}, "tuple": ()}  # what a default_factory makes
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}
#: An argument that has one of these is off, and is not worth a row.
_OFF: tuple[object, ...] = (None, False, "", "auto", "none", "null", [], {}, ())
_HEAD = """\
# Defaults of SGLang's server arguments (ServerArgs fields) that are not off, with the first and the last release that
# {releases}
# Source: class ServerArgs of sglang/srt/server_args.py; from 0.5.20 the namespaces of sglang/srt/arg_groups/fields/.
# Facts only. Renew: python -m oracle.defaults oracle/.venv/releases. Not here: what is None, False, empty or auto by
# default, and what is no literal."""


def defaults(release: Path) -> dict[str, Any]:
    """Argument -> its default, of a release's folder; those that are no literal are left out."""
    found: dict[str, Any] = {}
    for file in (one for pattern in _SOURCES for one in sorted(release.glob(pattern))):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        constants = dict(_constants(tree))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and (node.name == "ServerArgs" or file.parent.name == "fields"):
                found |= dict(_fields(node, constants))
    return found


def rows(releases: dict[str, dict[str, Any]]) -> Iterator[str]:
    """'name first last value', an interval of releases a row. `releases`: oldest first."""
    for name in sorted({name for one in releases.values() for name in one}):
        values = [(version, one.get(name, None)) for version, one in releases.items()]
        for value, same in groupby(values, key=lambda pair: repr(pair[1])):
            versions = [version for version, _ in same]
            if value in ("0", "0.0") or ast.literal_eval(value) not in _OFF:  # 0 is not False
                yield f"{name} {versions[0]} {versions[-1]} {value}"


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                yield node.targets[0].id, ast.literal_eval(node.value)
            except ValueError:
                continue


def _fields(node: ast.ClassDef, constants: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value is not None:
            try:
                yield field.target.id, _value(field.value, constants)
            except (ValueError, LookupError):
                continue


def _value(node: ast.expr, constants: dict[str, Any]) -> Any:
    """LookupError, ValueError: neither a literal nor a constant."""
    match node:
        case ast.Name(id=name):
            return constants[name]
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(place))):
            return constants[name][place]
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_value(left, constants), _value(right, constants))
        case ast.Call(keywords=[ast.keyword(arg="default", value=value), *_]):
            return _value(value, constants)
        case ast.Call(keywords=[ast.keyword(arg="default_factory", value=ast.Name(id=name)), *_]):
            return _MADE[name]
        case ast.Call():
            raise ValueError(node)
        case _:
            return ast.literal_eval(node)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m oracle.defaults", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("releases", type=Path, metavar="FOLDER", help="of the releases, each in its own: 0.5.23/sglang")
    folder = parser.parse_args().releases
    if not folder.is_dir():
        parser.error(f"{folder}: no such folder.\nGive the one with the releases: `make oracle` installs them.")
    versions = sorted((one.name for one in folder.iterdir() if (one / "sglang").is_dir()), key=version_key)
    found = {version: defaults(folder / version) for version in versions}
    print(_HEAD.format(releases=textwrap.fill(f"has each, of: {', '.join(versions)}.", 118).replace("\n", "\n# ")))
    print("\n".join(rows(found)))


if __name__ == "__main__":
    main()
