"""Whether an installed SGLang can take a command line: its flags, their choices, and the speculative algorithm.

In: the configuration and what the installation has. Out: what does not fit, each in two lines with the nearest that
exists; known before anything is started. The non-obvious thing: SGLang's parser takes the beginning of a flag for the
flag, as long as only one begins so.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

from ... import speculative
from ...configuration.config import RunConfig
from ...units import counted
from .capabilities import Capabilities, Flag
from .command import command
from .command_line import flags_of
from .flags import FLAGS, key_of_flag, spellings_of

#: Names of one flag over the releases.
_RENAMED = (
    ("mamba-scheduler-strategy", "mamba-radix-cache-strategy"),
    ("cuda-graph-max-bs", "cuda-graph-max-bs-decode"),
    ("cuda-graph-bs", "cuda-graph-bs-decode"),
    ("disable-piecewise-cuda-graph", "disable-prefill-cuda-graph"),
    ("piecewise-cuda-graph-max-tokens", "cuda-graph-max-bs-prefill"),
    ("piecewise-cuda-graph-tokens", "cuda-graph-bs-prefill"),
    ("nsa-prefill-backend", "dsa-prefill-backend"),
    ("nsa-decode-backend", "dsa-decode-backend"),
    ("speculative-dflash-draft-window-size", "speculative-draft-window-size"),
)
_MOST_TOLD = 12


def misfits(config: RunConfig, has: Capabilities, engine: str) -> list[str]:
    """What the installation cannot take, each in two lines; empty: nothing known. `engine`: its version and place."""
    argv = command(
        config,
        model_path=config.model,
        draft_path=config.speculative.draft_model_path,
        host=config.engine.host,
        port=config.engine.port or 1,
    )
    spelled = {given.lstrip("-").replace("_", "-"): f"engine.args.{given}" for given in config.engine.args}
    found: list[str] = []
    for flag, values in flags_of(argv).items():
        key = spelled.get(flag) or key_of_flag(flag) or f"--{flag}"
        found.extend(_of_algorithm(values, has, engine) if flag == "speculative-algorithm" else ())
        found.extend(_of_flag(key, flag, values, has, engine))
    return found


def _of_algorithm(values: list[str], has: Capabilities, engine: str) -> Iterator[str]:
    known = has.algorithms
    if known is None or not values or values[0].upper() in known:
        return
    name = values[0].upper()
    nearest = speculative.nearest(name, known)
    yield (
        f"speculative.algorithm: {name} is not in {engine}; it has {_listed(sorted(known))}.\n"
        f"{f'Nearest: {nearest}' if nearest else 'Name one of these, or none'}, or another engine (engine.python)."
    )


def _of_flag(key: str, flag: str, values: list[str], has: Capabilities, engine: str) -> Iterator[str]:
    if has.flags is None:
        return
    meant = [flag] if flag in has.flags else sorted(name for name in has.flags if name.startswith(flag))
    if not meant:
        nearest = _nearest(flag, has.flags)
        yield (
            f"{key}: {engine} has no --{flag} among its {counted(len(has.flags), 'flag')}.\n"
            f"{f'Nearest: --{nearest}' if nearest else 'Nothing there is spelled like it: leave it out'}."
        )
        return
    if len(meant) > 1:
        yield f"{key}: --{flag} could be {_listed(f'--{name}' for name in meant)} of {engine}.\nWrite the whole name."
        return
    choices = has.flags[meant[0]].choices
    wrong = [value for value in values if value not in choices] if choices is not None else []
    if choices is None or not wrong or flag == "speculative-algorithm":
        return
    near = difflib.get_close_matches(wrong[0], choices, n=1, cutoff=0.5)
    yield (
        f"{key}: {wrong[0][:80]!r} is no choice of --{meant[0]} in {engine}.\n"
        f"Choices: {_listed(choices)}{f'. Nearest: {near[0]}' if near else ''}."
    )


def _nearest(flag: str, known: Iterable[str]) -> str | None:
    names = set(known)
    for one, other in _RENAMED:
        renamed = other if flag == one else one if flag == other else None
        if renamed in names:
            return renamed
    near = difflib.get_close_matches(flag, sorted(names), n=1, cutoff=0.6)
    return near[0] if near else None


def _listed(names: Iterable[str]) -> str:
    told = list(names)
    more = f" and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    return f"{', '.join(told[:_MOST_TOLD])}{more}"


def lacking(flags: Mapping[str, Flag]) -> dict[str, str]:
    """Keys of a configuration that an installation has no flag for, under none of its names; with the newest name."""
    names = {key: spellings_of(key) for key in FLAGS}
    return {
        key: FLAGS[key] or f"--{known[-1]}" for key, known in names.items() if not any(name in flags for name in known)
    }
