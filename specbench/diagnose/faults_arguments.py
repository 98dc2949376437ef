"""Arguments that an engine version refuses: what contradicts what, and the change that it accepts.

In: a case and its failure of kind bad_arguments or context_above_model. Out: a fault with changes that `check` accepts;
where memory can be predicted, only those that serve.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from ..engines.contract import Failure
from ..engines.sglang.command import flags_for
from ..engines.sglang.flags import flag_name, key_of_flag, released_flags
from ..versions import version_key
from .argument_refusals import REFUSED, Figures, Refusal
from .case import Case
from .fault import Fault, flags_version, said, sourced
from .finding import Remedy
from .trying import Change, Goal

_UNRECOGNIZED = re.compile(r"unrecognized arguments: (?P<words>.{1,2000})")


def refused(case: Case, failure: Failure) -> Fault:
    """The contradiction in words, and what the version accepts; without a known text, the engine's own words."""
    flat = " ".join(failure.text.split())
    for known in REFUSED:
        found = known.text.search(flat)
        if found is not None:
            figures = {name: value for name, value in found.groupdict().items() if value is not None}
            return Fault(
                id="refused-arguments",
                cause=f"{known.why.format_map(figures)} The engine refuses the arguments: {said(failure)}",
                remedies=_ways_out(case, known, figures),
            )
    remedies: tuple[Remedy, ...] = ()
    hint = ""
    if found := _UNRECOGNIZED.search(flat):
        remedies, hint = _other_names(case, found["words"].split())
    return Fault(
        id="refused-arguments",
        cause=f"{hint}The engine refuses the arguments: {said(failure)}",
        remedies=remedies or case.remedies(),
    )


def _ways_out(case: Case, known: Refusal, figures: Figures) -> tuple[Remedy, ...]:
    """Tried by prediction where there is one to try; the ways that are not refused, where there is none."""
    if case.config is None or case.budget is None:
        return tuple(
            remedy
            for way in known.ways(figures)
            for remedy in sourced(case, way.set, way.note, version=known.version, env=way.env, dropped=way.dropped)
        )
    goal = Goal(requests=case.wanted_requests or 1)
    found: list[Remedy] = []
    for way in known.ways(figures):
        env = {f"engine.env.{name}": value for name, value in (way.env or {}).items()}
        words = [f"without {way.dropped}"] if way.dropped else []
        words += [f"{name}={value} in the server's environment" for name, value in (way.env or {}).items()]
        remedy = case.tried((Change({**way.set, **env}, "; ".join((*words, way.note))),), goal)
        found += [remedy] if remedy is not None else []
    named = [remedy.flags for remedy in found if remedy.flags]
    further = [remedy for remedy in case.remedies() if remedy.flags not in named]
    return (*found, *further)[:6]


def _other_names(case: Case, words: list[str]) -> tuple[tuple[Remedy, ...], str]:
    """What flags that a version does not know are called in it, and since when it has them."""
    version = flags_version(case)
    told: list[str] = []
    change: dict[str, Any] = {}
    for number, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, _, joined = word.lstrip("-").partition("=")
        key = key_of_flag(name)
        value = joined or (words[number + 1] if number + 1 < len(words) and words[number + 1][0] != "-" else True)
        own = flag_name(key, version) if key is not None else None
        if key is not None and own is not None and own != f"--{name}":
            told.append(f"--{name} is called {own} in SGLang {version}.")
            change[key] = value
        elif name in released_flags():
            first, last = released_flags()[name]
            told.append(f"--{name} is known from SGLang {first} to {last} (of those that were read).")
        elif near := difflib.get_close_matches(name, released_flags(), n=1):
            told.append(f"--{name} is no flag of SGLang; the nearest is --{near[0]}.")
    hint = "".join(f"{sentence} " for sentence in told)
    if not change or version_key(version) is None:
        return (), hint
    named = flags_for(change, version)
    return (sourced(case, change, f"the name in SGLang {version}: {named}") if named else ()), hint
