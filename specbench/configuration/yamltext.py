"""YAML text -> plain mapping, safely and strictly: no tags, no key twice, no key that is not text."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import yaml

from ..errors import ConfigError
from .explain import kind, one_line, shown

#: A params file has some hundred values; what is far beyond is no params file.
_MOST_BYTES = 1_000_000
_MOST_NODES = 50_000


#: Ten times as fast, where PyYAML was built with it.
_FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Strict(yaml.constructor.SafeConstructor):
    """Refuses a key given twice (YAML would silently keep the last)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key_node.value!r} is given twice", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


class _StrictLoader(_Strict, yaml.SafeLoader):
    """Of whatever anybody wrote."""


class _FastStrictLoader(_Strict, _FAST):  # type: ignore[misc,valid-type]  # whichever class it is
    """Of what is shipped. It takes some texts that the other refuses (tabs between words), and has other messages."""


def written(text: str) -> Any:
    """What specbench itself wrote or ships: read safely and fast. yaml.YAMLError: it is no YAML."""
    return yaml.load(text, Loader=_FAST)


def read_mapping(file: Path, *, expected: str, shipped: bool = False) -> dict[str, Any]:
    """The mapping in a YAML file. ConfigError names the file and the place; `expected` says what should be there.

    `shipped`: a table of the package, to which anybody may add rows; it is read as strictly, and fast.
    """
    if file.is_dir():
        raise ConfigError(f"{file}: this is a folder.\nExpected a params file, e.g. params/demo.yaml.")
    try:
        data = _load_shipped(_text(file)) if shipped else _load(_text(file))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}.\nExpected a params file.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not a text file.\nExpected YAML in UTF-8, e.g. params/demo.yaml.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(
            f"{file.name}: not valid YAML: {_problem(error)}.\nCheck indentation, colons and quotes there."
        ) from None
    if not isinstance(data, dict):
        raise ConfigError(f"{file.name}: got {shown(data)}.\nExpected {expected}.")
    for key in data:
        if not isinstance(key, str):
            raise ConfigError(f"{file.name}: key {key!r}: YAML read it as {kind(key)}.\nQuote it; expected {expected}.")
    return data


def parse_value(text: str) -> Any:
    """One value as YAML reads it: '8' -> 8, '[1, 4]' -> [1, 4], 'bfloat16' -> text. Raises ValueError (one line)."""
    try:
        return _load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(_problem(error)) from None


def _text(file: Path) -> str:
    """The file, unless it is far larger than any params file (or never ends: a device, a pipe)."""
    with file.open("rb") as stream:
        data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ConfigError(
            f"{file.name}: larger than {_MOST_BYTES:,} bytes.\nExpected a params file, e.g. params/demo.yaml."
        )
    return data.decode("utf-8")


def _load(text: str) -> Any:
    return _plain_value(_StrictLoader(text))


def _load_shipped(text: str) -> Any:
    """What the fast loader refuses is read once more by the other, for its message."""
    try:
        return _plain_value(_FastStrictLoader(text))  # type: ignore[call-arg]
    except (yaml.YAMLError, RecursionError, ValueError):
        return _load(text)


def _plain_value(loader: Any) -> Any:
    """Aliases are bounded: nine lines of YAML can stand for a billion nodes."""
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        if _nodes(root, {}) > _MOST_NODES:
            raise ValueError(f"anchors expand to more than {_MOST_NODES:,} values")
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _nodes(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes a tree has when every alias is written out. ValueError for an anchor that contains itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in known:
        if known[id(node)] == 0:
            raise ValueError("an anchor contains itself")
        return known[id(node)]
    known[id(node)] = 0  # being counted
    children = node.value if isinstance(node, yaml.SequenceNode) else itertools.chain.from_iterable(node.value)
    known[id(node)] = 1 + sum(_nodes(child, known) for child in children)
    return known[id(node)]


def _problem(error: Exception) -> str:
    """What is wrong and where in the text, without YAML's names for its inner workings."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, yaml.reader.ReaderError):
        return f"character {error.character:#04x} at position {error.position:,} is not allowed"
    if not isinstance(error, yaml.MarkedYAMLError):
        return one_line(error)
    words = ", ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark or error.context_mark
    place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
    return one_line(words) + place
