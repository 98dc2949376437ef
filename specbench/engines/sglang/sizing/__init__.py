"""Pool sizing by version: one file per version that changed something, the nearest earlier one applies.

To add a version: a file here that replaces the fields that changed, and its line in `RULES`.
"""

from __future__ import annotations

import functools

from ....configuration.config import EngineSection
from ....errors import ConfigError
from ....versions import is_development, nearest_earlier, version_key
from . import (
    v0_5_6,
    v0_5_7,
    v0_5_8,
    v0_5_9,
    v0_5_10,
    v0_5_11,
    v0_5_12,
    v0_5_13,
    v0_5_14,
    v0_5_15,
    v0_5_16,
    v0_5_17,
    v0_5_18,
    v0_5_19,
    v0_5_20,
    v0_5_21,
    v0_5_22,
    v0_5_23,
)
from .contract import Rule

RULES: dict[str, Rule] = {v0_5_6.FIRST.version: v0_5_6.FIRST} | {
    module.RULE.version: module.RULE
    for module in (
        v0_5_6,
        v0_5_7,
        v0_5_8,
        v0_5_9,
        v0_5_10,
        v0_5_11,
        v0_5_12,
        v0_5_13,
        v0_5_14,
        v0_5_15,
        v0_5_16,
        v0_5_17,
        v0_5_18,
        v0_5_19,
        v0_5_20,
        v0_5_21,
        v0_5_22,
        v0_5_23,
    )
}

#: Versions whose source was read. Others follow the nearest earlier rule, and the prediction says so.
VERSIONS_READ = (
    "0.5.6",
    "0.5.6.post1",
    "0.5.6.post2",
    "0.5.7",
    "0.5.8",
    "0.5.8.post1",
    "0.5.9",
    "0.5.10",
    "0.5.10.post1",
    "0.5.11",
    "0.5.12",
    "0.5.12.post1",
    "0.5.13",
    "0.5.13.post1",
    "0.5.14",
    "0.5.15",
    "0.5.15.post1",
    "0.5.16",
    "0.5.17",
    "0.5.18",
    "0.5.19",
    "0.5.20",
    "0.5.21",
    "0.5.22",
    "0.5.23",
)
_OLDEST = VERSIONS_READ[0]


def rule_version(engine: EngineSection) -> str:
    """The version whose rules apply: `engine.sizing` when given, else the version. ConfigError when neither tells."""
    if engine.sizing is not None:
        version_key(engine.sizing)
        return engine.sizing
    if is_development(engine.version):
        raise ConfigError(
            f"engine.version: {engine.version} is a development build, its number says nothing about its rules.\n"
            f'Name the release that it follows: engine.sizing: "{VERSIONS_READ[-1]}".'
        )
    return engine.version


@functools.cache
def rule_for(version: str) -> Rule:
    """The rule of a version. ConfigError for versions before the oldest that was read."""
    found = nearest_earlier(version, tuple(RULES))
    if found is None:
        raise ConfigError(
            f"engine.version: {version} is older than any sizing rule here.\n"
            f"The oldest is {_OLDEST}. Add a file under engines/sglang/sizing/."
        )
    return RULES[found]


def assumed_sizing(version: str) -> str | None:
    """The same of an installed engine, whatever its version is. None: its own sizing was read."""
    try:
        if is_development(version):
            return f"sglang {version} is a development build: engine.sizing names the release whose sizing it follows."
        if nearest_earlier(version, tuple(RULES)) is None:
            return f"sglang {version} is older than {_OLDEST}, the oldest whose sizing is known: nothing is predicted."
        return caveat(version)
    except ConfigError:
        return (
            f"sglang {version:.60}: no version by which a sizing rule could be chosen; engine.sizing names a release."
        )


def caveat(version: str) -> str | None:
    """A sentence when the sizing of the version itself was not read."""
    if version_key(version) in {version_key(read) for read in VERSIONS_READ}:
        return None
    nearest = nearest_earlier(version, VERSIONS_READ)
    if version_key(version) > version_key(VERSIONS_READ[-1]):
        return f"sglang {version} is later than any whose sizing was read; the sizing rules of {nearest} are assumed."
    return f"sglang {version}: its sizing was not read; the sizing rules of {nearest} are assumed."
