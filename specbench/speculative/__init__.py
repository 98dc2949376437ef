"""Speculative algorithms by name. To add one: a file here and its line in `ALGORITHMS`."""

from __future__ import annotations

import difflib
from collections.abc import Collection

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
    if wanted in _UNSIZED:
        where, nearest = _UNSIZED[wanted]
        raise ConfigError(
            f"speculative.algorithm: {wanted} {where}; specbench cannot size it yet.\n"
            f"Sized are {', '.join(ALGORITHMS)}; the nearest is {nearest}. "
            f"To add it: specbench/speculative/{wanted.lower()}.py."
        )
    raise ConfigError(f"speculative.algorithm: {unreleased(name)}.\nSized are {', '.join(ALGORITHMS)}.")


def nearest(name: str, known: Collection[str]) -> str | None:
    """Of the algorithms that an engine has, the one to take instead: the kindred one, or the one spelled like it."""
    wanted = canonical(name)
    kindred = _UNSIZED.get(wanted, ("", ""))[1]
    if kindred in known:
        return kindred
    near = difflib.get_close_matches(wanted, sorted(known), n=1, cutoff=0.5)
    return near[0] if near else None


def unreleased(name: str) -> str:
    """What is known of an algorithm that a release lacks, as a clause: where it exists, or which name is near."""
    wanted = canonical(name)
    if wanted in _UNSIZED:
        return f"{wanted} {_UNSIZED[wanted][0]}"
    near = difflib.get_close_matches(wanted, (*ALGORITHMS, *_UNSIZED), n=1, cutoff=0.5)
    return f"{name!r} is no algorithm that specbench knows{f' (did you mean {near[0]}?)' if near else ''}"
