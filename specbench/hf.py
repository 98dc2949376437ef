"""A model's config.json, read strictly. In: the file. Out: typed values, or a SpecError naming file and key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import SpecError

MOST_LAYERS = 1_024
_MOST_BYTES = 16_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HfConfig:
    """A section of a config.json. `where` is "name: section." for messages."""

    where: str
    data: Mapping[str, Any]

    def integer(self, key: str, *, most: int = 2**31 - 1) -> int:
        """A required positive whole number."""
        value = self._required(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self._wrong(key, value, f"a whole number from 1 to {most:,}")
        return value

    def integer_or(self, key: str, default: int, *, most: int = 2**31 - 1) -> int:
        """An optional number: `default` when the key is absent or null; 0 where that is the default, too."""
        value = self.data.get(key)
        none = value is None or (value == 0 and default == 0 and not isinstance(value, bool))
        return default if none else self.integer(key, most=most)

    def layers(self, key: str) -> int:
        """A required number of layers. Each becomes a value of its own, so it is bounded."""
        return self.integer(key, most=MOST_LAYERS)

    def layers_or(self, key: str, default: int) -> int:
        return self.integer_or(key, default, most=MOST_LAYERS)

    def share(self, key: str, of: str) -> int:
        """A required number divided by another, rounded down: a head's width, of `hidden_size` over its heads."""
        whole, parts = self.integer(key), self.integer(of)
        if parts > whole:
            raise SpecError(
                f"{self.where}{of}: got {parts:,}, more than {key} ({whole:,}), which they share.\n"
                "Correct the config.json."
            )
        return whole // parts

    def head_width(self) -> int:
        """`head_dim`, else what each of the attention heads has of `hidden_size`."""
        given = self.data.get("head_dim") is not None
        return self.integer("head_dim") if given else self.share("hidden_size", "num_attention_heads")

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
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e9:
            raise self._wrong(key, value, "a number from 0 to 1e9")
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
        return SpecError(f"{self.where}{key}: got {_short(value)}; expected {expected}.\nCorrect the config.json.")


def _short(value: object) -> str:
    """Of a huge number not even its digits are printed."""
    if isinstance(value, int) and abs(value) >= 10**60:
        return "a number of more than 60 digits"
    return f"{value!r:.60}"


def read_config(file: Path, name: str) -> HfConfig:
    """The config.json of a model, or another file of numbers beside it. SpecError when it is no JSON object."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise SpecError(f"{name}: {file.name} is larger than {_MOST_BYTES:,} bytes.\nLooked at {file}.")
        data = json.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise SpecError(f"{name}: {file.name} is nested too deeply.\nLooked at {file}.") from None
    except (OSError, ValueError) as error:  # no JSON, no UTF-8, a number of thousands of digits
        raise SpecError(f"{name}: {file.name} cannot be read: {error}.\nLooked at {file}.") from None
    if not isinstance(data, dict):
        raise SpecError(f"{name}: {file.name} holds no object.\nLooked at {file}.")
    return HfConfig(where=f"{name}: {file.name}: ", data=data)
