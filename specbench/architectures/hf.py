"""A model's config.json, read strictly. In: the file. Out: typed values, or a SpecError naming file and key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class HfConfig:
    """A section of a config.json. `where` is "name: section." for messages."""

    where: str
    data: Mapping[str, Any]

    def integer(self, key: str) -> int:
        """A required positive whole number."""
        value = self._required(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong(key, value, "a whole number above 0")
        return value

    def integer_or(self, key: str, default: int) -> int:
        """An optional number: `default` when the key is absent or null."""
        return default if self.data.get(key) is None else self.integer(key)

    def flag(self, key: str, default: bool) -> bool:
        value = self.data.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str) -> str:
        value = self._required(key)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, value, "text")
        return value

    def text_or(self, key: str, default: str | None) -> str | None:
        return default if self.data.get(key) is None else self.text(key)

    def number_or(self, key: str, default: float) -> float:
        value = self.data.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        return float(value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._required(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, value, "a list of texts")
        return tuple(value)

    def integers(self, key: str) -> tuple[int, ...]:
        value = self._required(key)
        if not isinstance(value, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
            raise self._wrong(key, value, "a list of whole numbers")
        return tuple(value)

    def section(self, key: str) -> HfConfig:
        found = self.section_or_none(key)
        if found is None:
            raise self._missing(key)
        return found

    def section_or_none(self, key: str) -> HfConfig | None:
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(key, value, "a section")
        return HfConfig(where=f"{self.where}{key}.", data=value)

    def _required(self, key: str) -> Any:
        if self.data.get(key) is None:
            raise self._missing(key)
        return self.data[key]

    def _missing(self, key: str) -> SpecError:
        return SpecError(
            f"{self.where}{key}: missing.\nThe architecture needs it; compare with the published config.json."
        )

    def _wrong(self, key: str, value: object, expected: str) -> SpecError:
        return SpecError(f"{self.where}{key}: got {value!r:.60}; expected {expected}.\nCorrect the config.json.")


def read_config(file: Path, name: str) -> HfConfig:
    """The config.json of a model. SpecError when it is no JSON object."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SpecError(f"{name}: config.json cannot be read: {error}.\nLooked at {file}.") from None
    if not isinstance(data, dict):
        raise SpecError(f"{name}: config.json holds no object.\nLooked at {file}.")
    return HfConfig(where=f"{name}: config.json: ", data=data)
