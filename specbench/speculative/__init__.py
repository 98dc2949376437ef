"""Speculative algorithms by name. To add one: a file here and its line in `ALGORITHMS`."""

from __future__ import annotations

import difflib

from ..errors import ConfigError
from . import dflash, eagle, ngram, none
from .contract import Algorithm

ALGORITHMS: dict[str, Algorithm] = {
    "none": none.ALGORITHM,
    "DFLASH": dflash.ALGORITHM,
    "EAGLE": eagle.EAGLE,
    "EAGLE3": eagle.EAGLE3,
    "NEXTN": eagle.NEXTN,
    "NGRAM": ngram.ALGORITHM,
}

#: Algorithms that exist but that specbench cannot size: where they exist, and the nearest that it can.
_UNSIZED: dict[str, tuple[str, str]] = {
    "STANDALONE": ("exists in SGLang since 0.5.6 and earlier", "EAGLE"),
    "FROZEN_KV_MTP": ("exists in SGLang since 0.5.12", "NEXTN"),
    "DSPARK": ("exists in SGLang since 0.5.16", "DFLASH"),
    "UNO": ("exists in SGLang since 0.5.20", "NGRAM"),
    "DDTREE": ("is in no SGLang release up to 0.5.23 (pull request 29907)", "DFLASH"),
}


def canonical(name: str) -> str:
    """SGLang upper-cases the name; the baseline is written none."""
    return "none" if name.lower() == "none" else name.upper()


def get(name: str) -> Algorithm:
    """The algorithm of a name. ConfigError (two lines): a near miss, or one that cannot be sized yet."""
    wanted = canonical(name)
    if wanted in ALGORITHMS:
        return ALGORITHMS[wanted]
    known = ", ".join(ALGORITHMS)
    if wanted in _UNSIZED:
        where, nearest = _UNSIZED[wanted]
        raise ConfigError(
            f"speculative.algorithm: {wanted} {where}; specbench cannot size it yet.\n"
            f"Known: {known}; the nearest is {nearest}. Add specbench/speculative/{wanted.lower()}.py."
        )
    near = difflib.get_close_matches(wanted, (*ALGORITHMS, *_UNSIZED), n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ConfigError(f"speculative.algorithm: {name!r} is no algorithm that specbench knows.{hint}\nKnown: {known}.")
