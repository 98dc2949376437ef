"""YAML text -> plain mapping, safely and strictly: no tags, no key twice, no key that is not text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError
from .explain import kind, one_line, shown


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice (YAML would silently keep the last)."""

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


def read_mapping(file: Path, *, expected: str) -> dict[str, Any]:
    """The mapping in a YAML file. ConfigError names the file and the place; `expected` says what should be there."""
    if file.is_dir():
        raise ConfigError(f"{file}: this is a folder.\nExpected a params file, e.g. params/demo.yaml.")
    try:
        data = yaml.load(file.read_text(encoding="utf-8"), _StrictLoader)
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not a text file.\nExpected YAML in UTF-8, e.g. params/demo.yaml.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(
            f"{file.name}: not valid YAML: {one_line(error)}.\nCheck indentation, colons and quotes there."
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
        return yaml.load(text, _StrictLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(one_line(error)) from None
