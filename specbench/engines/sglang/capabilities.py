"""What an installed SGLang can do: its server's flags with their choices, and its speculative algorithms.

In: the folder of the package. Out: `Capabilities`. Its files are read as text, nothing of it is imported or run: an
import takes most of a minute. The non-obvious thing: flags are defined in two ways, by calls of add_argument and, from
0.5.14, by annotated fields (`name: A[type, Arg(…)]`), in 0.5.20 and later in a folder of their own. What is written in
any other way is unknown (None), and what is unknown is never refused.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .source_text import Sources, is_text, keyword, texts

_SERVER_ARGS = "srt/server_args.py"
_FIELDS = "srt/arg_groups/fields"
_ALGORITHMS = "srt/speculative/spec_info.py"
#: Where an alias of a built-in algorithm may be written.
_ALIASES = (_SERVER_ARGS, "srt/speculative/spec_registry.py", "srt/arg_groups/speculative_hook.py", _ALGORITHMS)
#: Flags of different fields that every release has.
_EVERY_RELEASE = frozenset({"model-path", "port", "tp-size", "mem-fraction-static", "speculative-algorithm"})
_ANNOTATED = frozenset({"A", "Annotated"})
#: An entry of argparse's list: two spaces, the spellings with their value, and the help behind or below.
_OPTION = re.compile(r"^  (-\S.*?)(?:  |$)", re.MULTILINE)
_SPELLING = re.compile(r"--[a-zA-Z0-9][\w-]*")
_BRACES = re.compile(r"\{([^}]*)\}")
_BUILT_IN = re.compile(r"Builtins: ([A-Z0-9_]+(?:, [A-Z0-9_]+)*)\.")
_REGISTER = frozenset({"register", "register_algorithm"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One spelling of a flag of the server."""

    choices: tuple[str, ...] | None = None  # None: any value, or choices that are not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What one installation has. None: could not be read."""

    algorithms: tuple[str, ...] | None
    flags: Mapping[str, Flag] | None  # every spelling, without leading dashes
    source: str  # where this is known from, in words


def read(folder: Path) -> Capabilities:
    """Of the package in `folder`. Read once as long as its files do not change."""
    return _read(folder, _stamp(folder))


@functools.lru_cache(maxsize=8)
def _read(folder: Path, stamp: tuple[tuple[str, float], ...]) -> Capabilities:
    del stamp  # a part of the key alone
    sources = Sources(folder)
    try:
        flags = _flags(sources, folder)
        algorithms = _algorithms(sources, flags or {})
    except (RecursionError, MemoryError):  # no release is written so: what it has is unknown, and preflight notes that
        flags = algorithms = None
    # Half of the definitions is worse than none: what the other half has would be taken for missing.
    return Capabilities(
        algorithms=algorithms,
        flags=flags if flags and flags.keys() >= _EVERY_RELEASE else None,
        source=f"the source files in {folder}",
    )


def _stamp(folder: Path) -> tuple[tuple[str, float], ...]:
    files = [folder / name for name in _ALIASES] + _field_files(folder)
    return tuple((str(file), file.stat().st_mtime) for file in files if file.is_file())


def _field_files(folder: Path) -> list[Path]:
    return sorted((folder / _FIELDS).glob("*.py"))


def _flags(sources: Sources, folder: Path) -> dict[str, Flag] | None:
    """None: one of the files cannot be read."""
    found: dict[str, Flag] = {}
    for name in (_SERVER_ARGS, *(file.relative_to(folder).as_posix() for file in _field_files(folder))):
        tree = sources.tree(name)
        if tree is None:
            return None
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                found.update(_of_call(node, sources, name))
            elif isinstance(node, ast.AnnAssign):
                found.update(_of_field(node, sources, name))
    return found


def _of_call(node: ast.Call, sources: Sources, file: str) -> Iterator[tuple[str, Flag]]:
    flag = Flag(choices=_choices(keyword(node, "choices"), sources, file))
    for spelling in texts(node.args) or ():
        if spelling.startswith("--"):
            yield spelling.lstrip("-"), flag


def _of_field(node: ast.AnnAssign, sources: Sources, file: str) -> Iterator[tuple[str, Flag]]:
    kind = node.annotation
    if not (isinstance(node.target, ast.Name) and isinstance(kind, ast.Subscript) and _name(kind.value) in _ANNOTATED):
        return
    parts = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
    argument = next((part for part in parts[1:] if isinstance(part, ast.Call) and _name(part.func) == "Arg"), None)
    if argument is None:
        # A text alone is the flag's help; anything else beside the type says nothing of the command line.
        if any(isinstance(part, ast.Constant | ast.JoinedStr | ast.BinOp) for part in parts[1:]):
            yield _dashed(node.target.id), Flag(choices=_literal(parts[0]))
        return
    hidden = keyword(argument, "no_cli")
    if isinstance(hidden, ast.Constant) and hidden.value is True:
        return
    flag = Flag(choices=_choices(keyword(argument, "choices"), sources, file) or _literal(parts[0]))
    own = keyword(argument, "cli_name")
    yield (own.value.lstrip("-") if is_text(own) else _dashed(node.target.id)), flag
    for alias in sources.values(keyword(argument, "aliases"), file) or ():
        yield alias.lstrip("-"), flag


def _choices(node: ast.expr | None, sources: Sources, file: str) -> tuple[str, ...] | None:
    return None if node is None else sources.values(node, file)


def _literal(kind: ast.expr) -> tuple[str, ...] | None:
    """The values of a Literal type, also of an optional one."""
    for node in ast.walk(kind):
        if isinstance(node, ast.Subscript) and _name(node.value) == "Literal":
            values = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if all(isinstance(value, ast.Constant) for value in values):
                return tuple(str(value.value) for value in values if isinstance(value, ast.Constant))
    return None


def _algorithms(sources: Sources, flags: Mapping[str, Flag]) -> tuple[str, ...] | None:
    """The choices of the flag, when it has any; else the members of the enum, their aliases and registered ones."""
    flag = flags.get("speculative-algorithm")
    if flag is not None and flag.choices is not None:
        return flag.choices
    tree = sources.tree(_ALGORITHMS)
    if tree is None:
        return None
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "SpeculativeAlgorithm":
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                names += [target.id for target in targets if isinstance(target, ast.Name) and target.id.isupper()]
    if not names:
        return None
    names += _registered(sources)
    if any(node.value == "NEXTN" for name in _ALIASES for node in sources.constants(name)):
        names.append("NEXTN")
    return tuple(dict.fromkeys(name for name in names if name != "NONE"))


def _registered(sources: Sources) -> Iterator[str]:
    """Names that the engine's own files register beside the enum."""
    for name in sources.under("srt/speculative"):
        tree = sources.tree(name) if "register" in sources.text(name) else None
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.Call) and _name(node.func) in _REGISTER and node.args and is_text(node.args[0]):
                yield node.args[0].value.upper()


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _dashed(field: str) -> str:
    return field.replace("_", "-")


def of_help(text: str) -> Capabilities:
    """The same from what the engine's own --help prints: the thorough way, which imports the engine."""
    found: dict[str, Flag] = {}
    for option in _OPTION.findall(text):
        choices = _BRACES.search(option)
        flag = Flag(choices=tuple(choices[1].split(",")) if choices else None)
        found.update(dict.fromkeys((spelling.lstrip("-") for spelling in _SPELLING.findall(option)), flag))
    asked = found.get("speculative-algorithm", Flag())
    told = _BUILT_IN.search(" ".join(text.split()))
    return Capabilities(
        algorithms=asked.choices or (tuple(told[1].split(", ")) if told else None),
        flags=found if found.keys() >= _EVERY_RELEASE else None,
        source="the engine's own --help",
    )
