"""Engine versions: '0.5.6.post2', '0.5.12', '0.0.0.dev1+g977830e91' as comparable tuples."""

from __future__ import annotations

import re
from functools import lru_cache

from .errors import ConfigError

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?(?:\.?(?:dev|rc|a|b)\d*)?(?:\+\S+)?", re.ASCII)

VersionKey = tuple[int, int, int, int]


@lru_cache(maxsize=256)  # one prediction compares some hundred times, and remedies are predicted by the dozen
def version_key(text: str) -> VersionKey:
    """'0.5.12' -> (0, 5, 12, 0); '0.5.6.post2' -> (0, 5, 6, 2). ConfigError when it is no version."""
    found = _VERSION.fullmatch(text.strip())
    if not found:
        raise ConfigError(f"engine.version: {text!r:.90} is no version.\nExpected a form like 0.5.12 or 0.5.6.post2.")
    major, minor, patch, post = found.groups()
    return int(major), int(minor), int(patch), int(post or 0)


def at_least(version: str, bound: str) -> bool:
    """Whether `version` is `bound` or later."""
    return version_key(version) >= version_key(bound)


def is_development(version: str) -> bool:
    """0.0.0.dev… builds carry no usable number: `engine.sizing` must name the rule they follow."""
    return version_key(version)[:3] == (0, 0, 0)


def nearest_earlier(version: str, known: tuple[str, ...]) -> str | None:
    """Of `known`, the latest that is not later than `version`; None when all are later."""
    earlier = [candidate for candidate in known if version_key(candidate) <= version_key(version)]
    return max(earlier, key=version_key, default=None)
