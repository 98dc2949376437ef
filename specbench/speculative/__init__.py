"""Speculative algorithms by name. To add one: a file here and its line in `ALGORITHMS`."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from ..configuration.config import SpeculativeSection
from ..errors import ConfigError
from . import ddtree, dflash, dspark, eagle, frozen_kv_mtp, ngram, none, standalone, uno
from .contract import Algorithm
from .custom import Custom

ALGORITHMS: dict[str, Algorithm] = {
    "none": none.ALGORITHM,
    "DFLASH": dflash.ALGORITHM,
    "DSPARK": dspark.ALGORITHM,
    "EAGLE": eagle.EAGLE,
    "EAGLE3": eagle.EAGLE3,
    "NEXTN": eagle.NEXTN,
    "STANDALONE": standalone.ALGORITHM,
    "FROZEN_KV_MTP": frozen_kv_mtp.ALGORITHM,
    "NGRAM": ngram.ALGORITHM,
    "UNO": uno.ALGORITHM,
    "DDTREE": ddtree.ALGORITHM,
}

#: The kindred algorithm to take where a release lacks one.
_KINDRED: dict[str, str] = {
    "STANDALONE": "EAGLE",
    "FROZEN_KV_MTP": "NEXTN",
    "DSPARK": "DFLASH",
    "UNO": "NGRAM",
    "DDTREE": "DFLASH",
}
_UNRELEASED: dict[str, str] = {
    "DDTREE": "is in no SGLang release up to 0.5.23 (pull request 29907); engine.sizing names the release that a fork "
    "with it was made from",
}


def canonical(name: str) -> str:
    """SGLang upper-cases the name; the baseline is written none."""
    return "none" if name.lower() == "none" else name.upper()


def of(section: SpeculativeSection) -> Algorithm:
    """The algorithm of a configuration: built-in, or the plug-in's that `custom` describes. ConfigError: neither."""
    if section.custom is not None:
        return Custom(name=canonical(section.algorithm), described=section.custom)
    return get(section.algorithm)


def get(name: str) -> Algorithm:
    """The algorithm of a name. ConfigError (two lines) with a near miss."""
    wanted = canonical(name)
    if wanted in ALGORITHMS:
        return ALGORITHMS[wanted]
    raise ConfigError(
        f"speculative.algorithm: {unreleased(name)}.\n"
        f"Sized are {', '.join(ALGORITHMS)}; one that a plug-in brings is described under speculative.custom."
    )


def nearest(name: str, known: Collection[str]) -> str | None:
    """Of the algorithms that an engine has, the one to take instead: the kindred one, or the one spelled like it."""
    wanted = canonical(name)
    kindred = _KINDRED.get(wanted)
    if kindred in known:
        return kindred
    near = difflib.get_close_matches(wanted, sorted(known), n=1, cutoff=0.5)
    return near[0] if near else None


def unreleased(name: str) -> str:
    """What is known of an algorithm that a release lacks, as a clause: where it exists, or which name is near."""
    wanted = canonical(name)
    if wanted in _UNRELEASED:
        return f"{wanted} {_UNRELEASED[wanted]}"
    near = difflib.get_close_matches(wanted, ALGORITHMS, n=1, cutoff=0.5)
    return f"{name!r} is no algorithm that specbench knows{f' (did you mean {near[0]}?)' if near else ''}"
