"""Python source as data: the files of a package, parsed, and the few expressions whose value can be told by reading.

In: a folder and names of files in it. Out: syntax trees, and the values of lists of texts, also where they are named
constants of this or of another file of the package. None: missing, broken, or more than a plain value.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeGuard

_PACKAGE = "sglang."
_DEPTH = 8
#: The largest file that is read here has 375 kB (server_args.py of 0.5.16).
_LARGEST_BYTES = 4_000_000


class Sources:
    """The files below one folder, each parsed when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trees: dict[str, ast.Module | None] = {}
        self._set: dict[str, Counter[str]] = {}

    def text(self, name: str) -> str:
        """The file's text; empty when it cannot be read, is no regular file, or larger than source ever is."""
        file = self._folder / name
        try:
            if not file.is_file():  # the other end of a pipe need never write, a device never ends
                return ""
            with file.open("rb") as source:
                data = source.read(_LARGEST_BYTES + 1)
            return "" if len(data) > _LARGEST_BYTES else data.decode("utf-8")
        except (OSError, ValueError):
            return ""

    def tree(self, name: str) -> ast.Module | None:
        if name not in self._trees:
            text = self.text(name)
            try:
                self._trees[name] = ast.parse(text) if text else None
            except (SyntaxError, ValueError, RecursionError, MemoryError):  # nested too deeply
                self._trees[name] = None
        return self._trees[name]

    def under(self, folder: str) -> Iterator[str]:
        for file in sorted((self._folder / folder).glob("*.py")):
            yield file.relative_to(self._folder).as_posix()

    def constants(self, name: str) -> Iterator[ast.Constant]:
        tree = self.tree(name)
        return (node for node in ast.walk(tree) if isinstance(node, ast.Constant)) if tree else iter(())

    def values(self, node: ast.expr | None, file: str, depth: int = 0) -> tuple[str, ...] | None:
        """The items of a list, tuple or set, as texts; None: not told by reading alone."""
        if depth > _DEPTH or node is None:
            return None
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            parts = [
                self.values(item.value, file, depth + 1) if isinstance(item, ast.Starred) else _single(item)
                for item in node.elts
            ]
            return _joined(parts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return _joined([self.values(side, file, depth + 1) for side in (node.left, node.right)])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
            plain = node.func.id in ("list", "tuple", "set", "frozenset", "sorted") and not node.keywords
            return self.values(node.args[0], file, depth + 1) if plain else None
        return self._named(node.id, file, depth + 1) if isinstance(node, ast.Name) else None

    def _named(self, name: str, file: str, depth: int) -> tuple[str, ...] | None:
        """The value of a constant of a file; None when it is set more than once, or only under a condition."""
        tree = self.tree(file)
        if tree is None:
            return None
        if self._times_set(file, tree)[name] > 1:
            return None
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and [_target(target) for target in statement.targets] == [name]:
                return self.values(statement.value, file, depth)
            if isinstance(statement, ast.AnnAssign) and _target(statement.target) == name:
                return self.values(statement.value, file, depth)
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(_PACKAGE):
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        return self._named(alias.name, _file_of(statement.module or ""), depth + 1)
        return None

    def _times_set(self, file: str, tree: ast.Module) -> Counter[str]:
        if file not in self._set:
            names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
            self._set[file] = Counter(node.id for node in names if isinstance(node.ctx, ast.Store))
        return self._set[file]


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    """The value of a named argument; None: not given."""
    return next((given.value for given in node.keywords if given.arg == name), None)


def texts(nodes: Sequence[ast.expr]) -> tuple[str, ...]:
    """Those of the expressions that are plain texts."""
    return tuple(node.value for node in nodes if is_text(node))


class _Text(ast.Constant):
    value: str


def is_text(node: ast.expr | None) -> TypeGuard[_Text]:
    """Whether the expression is a plain text."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _single(node: ast.expr) -> tuple[str, ...] | None:
    return (str(node.value),) if isinstance(node, ast.Constant) else None


def _joined(parts: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    found: list[str] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return tuple(dict.fromkeys(found))


def _target(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _file_of(module: str) -> str:
    return f"{module.removeprefix(_PACKAGE).replace('.', '/')}.py"
