"""What is wished of a server, checked: `NAME=VALUE` texts -> `Wishes`. ConfigError in two lines for everything else.

A request's context alone says nothing of the pool. The wish is that every running request can be as long as its context
at the same moment, so the KV pool must hold running_requests × context tokens; `kv_tokens` states the tokens instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..configuration.explain import listed, near_miss, shown
from ..errors import ConfigError
from ..speculative import canonical
from ..units import GIB

StateDtype = Literal["float32", "bfloat16", "float16"]
_STATE_DTYPES: tuple[StateDtype, ...] = ("float32", "bfloat16", "float16")

#: Where nothing is estimated, and at the least: graphs (0.1-1.2 GiB in the recordings) and a prefill chunk.
LEAST_SLACK_BYTES = 2 * GIB
#: Beyond these a figure is a slip of the pen, and arithmetic over it says nothing.
_MOST_REQUESTS = 100_000
_MOST_TOKENS = 2**40
_MOST_GIB = 4096.0
_SHORT = re.compile(r"([1-9][0-9]{0,5})[kK]")  # 32k: 32,768 or 32,000
_MOST_DIGITS = 20
_MOST_GPUS = 1024

#: Wish -> what it means, for messages and help.
MEANINGS: Mapping[str, str] = {
    "running_requests": "requests that run at once, of the whole server (left out: as many as possible)",
    "context": "tokens of each of them, input and output together; the KV pool holds all of them at once",
    "kv_tokens": "tokens in the KV pool, instead of running_requests × context",
    "algorithm": "the speculative algorithm; none: without speculation",
    "draft_tokens": "the least number of tokens verified per step",
    "state_dtype": "the recurrent state stays of this type (float32, bfloat16, float16)",
    "kv_dtype": "the KV cache stays of this type (auto, bf16, fp8_e4m3, …)",
    "prefix_cache": "true: the prefix cache stays on",
    "slack_gib": "GiB of each card that stay outside the pools, for graphs and activations (left out: by estimate)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """None: not wished."""

    running_requests: int | None = None  # of the whole server; None: as many as possible
    context: int | None = None  # tokens of one request
    kv_tokens: int | None = None
    algorithm: str | None = None
    draft_tokens: int | None = None
    state_dtype: StateDtype | None = None
    kv_dtype: str | None = None
    prefix_cache: bool = False
    slack_bytes: int | None = None  # of each card; None: what is estimated to be needed

    def tokens(self, requests: int, least: int) -> int:
        """KV tokens without which so many requests are not served as wished.

        `least`: of one whole request where no context is wished: a pool that holds less serves to the letter only.
        """
        if self.kv_tokens is not None:
            return self.kv_tokens
        return least if self.context is None else requests * self.context

    @property
    def mapping(self) -> dict[str, Any]:
        """What is wished, by the names of the wishes: `of_mapping` reads it back equal."""
        found = {name: getattr(self, name) for name in MEANINGS if name not in ("slack_gib", "prefix_cache")}
        slack = None if self.slack_bytes is None else self.slack_bytes / GIB
        found |= {"prefix_cache": self.prefix_cache or None, "slack_gib": slack}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def words(self) -> str:
        """'8 requests at once, each of 32,768 tokens (262,144 KV tokens together)'."""
        wanted = self.running_requests
        parts = ["as many requests at once as possible" if wanted is None else _counted(wanted)]
        if self.context is not None:
            parts[0] += f", each of {self.context:,} tokens"
            if wanted is not None and self.kv_tokens is None:
                parts[0] += f" ({wanted * self.context:,} KV tokens together)"
        if self.kv_tokens is not None:
            parts.append(f"{self.kv_tokens:,} KV tokens")
        if self.algorithm is not None:
            parts.append("no speculation" if self.algorithm == "none" else self.algorithm)
        if self.draft_tokens is not None:
            parts.append(f"at least {self.draft_tokens} draft tokens")
        if self.state_dtype is not None:
            parts.append(f"state stays {self.state_dtype}")
        if self.kv_dtype is not None:
            parts.append(f"KV stays {self.kv_dtype}")
        if self.prefix_cache:
            parts.append("prefix cache stays on")
        if self.slack_bytes is not None:
            parts.append(f"{self.slack_bytes / GIB:g} GiB outside the pools")
        return "; ".join(parts)


def _counted(requests: int) -> str:
    return f"{requests:,} request{'' if requests == 1 else 's'} at once"


def parse(texts: Iterable[str]) -> Wishes:
    """`["running_requests=8", "context=32768"]` -> Wishes. ConfigError: unknown, twice, or an impossible figure."""
    given: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ConfigError(f"--want {shown(text)}: no NAME=VALUE.\nExpected e.g. running_requests=8.")
        name = name.strip()
        if name not in MEANINGS:
            raise ConfigError(f"--want {shown(name)}: no such wish{near_miss(name, MEANINGS)}.\n{_known()}")
        if name in given:
            raise ConfigError(f"--want {name}: given twice ({shown(given[name])}, {shown(value)}).\nKeep one of them.")
        given[name] = value.strip()
    return of_mapping(given)


def of_mapping(given: Mapping[str, Any]) -> Wishes:
    """The same of a mapping, as a notebook's parameters hold it; None: not wished."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in MEANINGS:
            raise ConfigError(f"want: {shown(name)}: no such wish{near_miss(str(name), MEANINGS)}.\n{_known()}")
        if value is not None:
            found["slack_bytes" if name == "slack_gib" else name] = _READERS[name](name, value)
    wishes = Wishes(**found)
    if wishes.running_requests is None and wishes.kv_tokens is not None and wishes.context is not None:
        raise ConfigError(
            "want: kv_tokens and context, but not running_requests: nothing says how many share the tokens.\n"
            "Give running_requests, or one of the two."
        )
    return wishes


def _known() -> str:
    return f"Wishes: {listed(MEANINGS)}."


def check_gpus(gpus: object) -> None:
    """ConfigError unless it is a number of cards that one server may have."""
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 1 <= gpus <= _MOST_GPUS:
        raise ConfigError(f"--gpus: got {shown(gpus)}.\nExpected how many cards there are: 1 to {_MOST_GPUS:,}.")


def _count(most: int) -> Callable[[str, Any], int]:
    def read(name: str, value: Any) -> int:
        text = value.replace("_", "").replace(",", "") if isinstance(value, str) else value
        if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
            text = int(text)
        if isinstance(text, bool) or not isinstance(text, int) or not 1 <= text <= most:
            short = _SHORT.fullmatch(text) if isinstance(text, str) else None
            meant = f" Did you mean {int(short[1]) * 1024}?" if short else ""
            raise ConfigError(
                f"want {name}: got {shown(value)}.{meant}\n"
                f"Expected a whole number from 1 to {most:,}: {MEANINGS[name]}."
            )
        return text

    return read


def _gib(name: str, value: Any) -> int:
    try:
        size = float(value)
    except (TypeError, ValueError):
        size = -1.0
    if isinstance(value, bool) or not 0 <= size <= _MOST_GIB:
        raise ConfigError(f"want {name}: got {shown(value)}.\nExpected GiB, from 0 to {_MOST_GIB:,.0f}.")
    return round(size * GIB)


def _yes(name: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"want {name}: got {shown(value)}.\nExpected true or false: {MEANINGS[name]}.")
    return text == "true"


def _state_dtype(name: str, value: Any) -> str:
    if value not in _STATE_DTYPES:
        raise ConfigError(f"want {name}: got {shown(value)}.\nExpected {listed(_STATE_DTYPES)}.")
    return str(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"want {name}: got {shown(value)}.\nExpected a name: {MEANINGS[name]}.")
    return value


def _algorithm(name: str, value: Any) -> str:
    return canonical(_text(name, value))


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "running_requests": _count(_MOST_REQUESTS),
    "context": _count(2**31 - 1),
    "kv_tokens": _count(_MOST_TOKENS),
    "algorithm": _algorithm,
    "draft_tokens": _count(2**31 - 1),
    "state_dtype": _state_dtype,
    "kv_dtype": _text,
    "prefix_cache": _yes,
    "slack_gib": _gib,
}
