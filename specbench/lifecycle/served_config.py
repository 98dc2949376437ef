"""An attached server has the configuration that it was started with: ours must be that one.

In: the configuration as asked, and what /server_info says. Out: the configuration as it is served, with what was not
stated filled in, and notes. ConfigError when a stated key that decides what a server does is not as served: the
figures of one configuration would be passed off as those of another.

The non-obvious thing: /server_info has the arguments after the engine resolved them, so NEXTN has become EAGLE and what
was left to the engine has a value; a model is known there by its path on that machine and cannot be compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from .. import speculative
from ..configuration.config import RunConfig
from ..engines.sglang.command import command
from ..engines.sglang.command_line import sections_of
from ..engines.sglang.flags import FLAGS, spellings_of
from ..engines.sglang.given import arg_name, server_args
from ..errors import ConfigError
from ..specs import named_by
from ..versions import is_development
from .differences import OPEN, differing, flat
from .preflight import same_version

#: The engine's own name of an algorithm, for those that it renames.
_RESOLVED_AS = {"NEXTN": ("EAGLE", "FROZEN_KV_MTP"), "EAGLE": ("FROZEN_KV_MTP",)}
#: A path on the server's machine.
_DRAFT = "speculative.draft_model_path"
#: Flags without a key of their own that say what a figure is worth or what is allocated, with the engine's defaults.
_TELLING = {
    "device": "cuda",
    "load_format": "auto",
    "linear_attn_backend": "triton",
    "mamba_track_interval": 256,
    "disable_cuda_graph": False,
}
#: Of which "auto" or nothing is the default, so that ours does not tell the kind.
_TEXTS = frozenset({"memory.kv_cache_dtype", "memory.mamba_ssm_dtype", "memory.mamba_radix_cache_strategy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AsServed:
    """What a run on an attached server has."""

    config: RunConfig
    taken: Mapping[str, Any]  # key -> value, as the server says it
    notes: tuple[str, ...]


def as_served(asked: RunConfig, info: Mapping[str, Any]) -> AsServed:
    """The configuration made whole by the server's. ConfigError (two lines): a stated key is served otherwise."""
    stated = flat(asked.stated())
    written = flat(sections_of(command(asked, model_path="m", draft_path="d", host="h", port=1)))
    wrong: dict[str, tuple[Any, Any]] = {}
    taken: dict[str, Any] = {}
    odd: dict[str, Any] = {}  # what is no value of its key is not known
    version = info.get("version")
    if isinstance(version, str) and not _is_version(asked, version):
        wrong["engine.version"] = (asked.engine.version, version)
    whole = flat(asked.to_sections())
    for key in FLAGS:
        names = [arg_name(flag) for flag in spellings_of(key)]
        known = [info[name] for name in names if name in info]
        if not known or key == _DRAFT or key.startswith("engine."):
            continue
        theirs = known[0]
        if not _is_of_kind(key, theirs, whole[key], stated.get(key)):
            odd[key] = theirs
            continue
        if key == "speculative.algorithm":
            theirs = "none" if theirs is None else theirs
        mine = written.get(key, stated.get(key))
        if mine in OPEN:
            if theirs not in OPEN and theirs != whole[key]:
                taken[key] = theirs
        elif not _equal(key, mine, theirs):
            wrong[key] = (mine, theirs)
    if wrong:
        _refuse(asked, wrong)
    config, taken = _with(asked, taken, odd)
    config, draft_note = _with_draft(config, info)
    if draft_note is not None and config.speculative.draft_model_path is not None:
        taken[_DRAFT] = config.speculative.draft_model_path
    told = _told_flags(asked, info)
    if told:
        config = config.replace({"engine.args": {**asked.engine.args, **told}})
        taken |= {f"engine.args.{name}": value for name, value in told.items()}
    return AsServed(
        config=config, taken=taken, notes=(*_notes(asked, info, taken, odd), *([draft_note] if draft_note else ()))
    )


def _is_version(asked: RunConfig, served: str) -> bool:
    try:
        fork = is_development(served) and asked.engine.sizing is not None
    except ConfigError:
        fork = asked.engine.sizing is not None
    return fork or same_version(served, asked.engine.version)


def _equal(key: str, mine: Any, theirs: Any) -> bool:
    if key == "speculative.algorithm":
        name, served = speculative.canonical(str(mine)), speculative.canonical(str(theirs))
        return name == served or served in _RESOLVED_AS.get(name, ())
    return bool(mine == theirs)


def _is_of_kind(key: str, theirs: Any, *ours: Any) -> bool:
    """Number, text or switch, where ours is one; what no setting is of is neither."""
    kinds = {_kind(value) for value in ours if value not in OPEN}
    if key in _TEXTS:
        kinds.add("text")
    return theirs is None or theirs == "auto" or _kind(theirs) in (kinds or {"number", "text", "switch"})


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "switch"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "neither"


def _with(asked: RunConfig, served: Mapping[str, Any], odd: dict[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """`asked` with the server's values, as far as they are values that a configuration can have; the rest is `odd`."""
    config, taken = asked, {}
    fraction = "memory.mem_fraction_static"
    for key, value in served.items():
        if key == fraction and asked.gpu.emulate is not None:
            continue  # theirs is of the real card
        if key.startswith("speculative.") and not _belongs(config, key, value):
            continue
        try:
            config = config.replace({key: value})
        except ValidationError:
            odd[key] = value
            continue
        taken[key] = value
    return config, taken


def _with_draft(config: RunConfig, info: Mapping[str, Any]) -> tuple[RunConfig, str | None]:
    """With the draft model that the server has, where its path ends with a name that we know; and a note on it.

    None: the params state one, or the server has none of its own (NEXTN drafts with the target's head).
    """
    path = info.get("speculative_draft_model_path")
    if config.speculative.draft_model_path is not None or not isinstance(path, str) or path == info.get("model_path"):
        return config, None
    name = named_by(path)
    if name is not None and _belongs(config, _DRAFT, name):
        return config.replace({_DRAFT: name}), f"the attached server's draft model {path[:200]} is taken for {name}"
    return config, (
        f"the attached server's draft model {path[:200]} is none that specbench knows by its name, so memory cannot be "
        f"predicted: state {_DRAFT} (a name, or a folder with its config.json)"
    )


def _belongs(config: RunConfig, key: str, value: Any) -> bool:
    """The engine fills in steps and branches of algorithms that have none."""
    if key == "speculative.algorithm":
        return True
    try:
        tried = config.replace({key: value}).speculative
        return not any(f"speculative.{found.key}" == key for found in speculative.of(tried).check(tried))
    except (ConfigError, ValidationError):
        return False


def _told_flags(asked: RunConfig, info: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `_TELLING` that are not stated and that the server has otherwise than by default."""
    stated = server_args(asked)
    return {
        name: info[name]
        for name, default in _TELLING.items()
        if name not in stated and type(info.get(name)) is type(default) and info[name] != default
    }


def _notes(asked: RunConfig, info: Mapping[str, Any], taken: Mapping[str, Any], odd: Mapping[str, Any]) -> list[str]:
    notes = [f"attached to a server that somebody else started ({asked.engine.attach}); it was left running"]
    notes.append(
        f"the attached server's model is {str(info.get('model_path') or 'not told')[:200]}; {asked.model} and "
        f"{asked.gpu.count} × {asked.gpu.name} are what the params say, which it cannot confirm"
    )
    for key, value in odd.items():
        notes.append(f"{key} is not known: the attached server says {json.dumps(value)[:80]}, which is no value of it")
    if not isinstance(info.get("version"), str):
        notes.append(f"the attached server does not tell its version; {asked.engine.version} is what the params say")
    if taken:
        told = ", ".join(f"{key} {value}" for key, value in taken.items())
        notes.append(f"taken from the attached server, as it resolved them: {told}")
    for given, value in asked.engine.args.items():
        name = arg_name(given)
        if value in (None, False) or name not in info:
            continue
        if info[name] != value:
            notes.append(f"engine.args.{given}: {str(value)[:80]} in the params, served {str(info[name])[:80]}")
    if asked.engine.env or asked.engine.python:
        notes.append("engine.python and engine.env say nothing of an attached server and were not used")
    return notes


def _refuse(asked: RunConfig, wrong: Mapping[str, tuple[Any, Any]]) -> None:
    raise ConfigError(
        f"{differing(wrong, 'served')} (engine.attach: {asked.engine.attach}).\n"
        f"The server that runs there is another one: use {'its value' if len(wrong) == 1 else 'its values'}, or leave "
        "the key out to take them."
    )
