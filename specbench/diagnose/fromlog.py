"""A configuration from a bare log: from the arguments that the engine prints, a launch command in the paste, the lines
themselves, and what a person tells beside it.

What the log cannot tell (the model's config.json, the card) is matched against what specbench ships, and named as an
assumption; what nothing tells is asked for by name (`Question`). When the model is not known there is no configuration,
and the diagnosis rests on the log alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from ..configuration.config import RunConfig
from ..engines import check
from ..engines.contract import PoolReport, ServerLog
from ..engines.sglang.printed import sections_of_printed
from ..engines.sglang.sizing import caveat
from ..errors import SpecbenchError
from ..specs import load_model, named_by
from ..versions import is_development
from .absent_ranks import absent_ranks
from .card import card_of_log
from .release import best, explaining, fitting, ground
from .told import Question, Told

_NOT_KNOWN = "(not known)"  # no name: what a log calls its model is not looked for on this machine
_LAUNCH = '--launch "python -m sglang.launch_server …"'
_DRAFT = '--launch "… --speculative-draft-model-path NAME|FOLDER"'


@dataclass(frozen=True, slots=True, kw_only=True)
class FromLog:
    """What a bare log and its teller give."""

    config: RunConfig | None  # None: too little is known to predict
    assumptions: tuple[str, ...]
    questions: tuple[Question, ...] = ()
    card_known: bool = False  # told, or named in the paste; else taken by its memory
    arguments: RunConfig | None = None  # where only the model is not known: the rest, its model a name only


@dataclass(slots=True)
class _Notes:
    """Gathered on the way."""

    assumed: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    card_known: bool = False

    def ask(self, missing: str, why: str, answer: str) -> None:
        self.questions.append(Question(missing=missing, why=why, answer=answer))

    def result(self, config: RunConfig | None = None) -> FromLog:
        return FromLog(
            config=config,
            assumptions=tuple(self.assumed),
            questions=tuple(self.questions),
            card_known=self.card_known,
        )


def config_of_log(log: ServerLog, pools: PoolReport, label: str, told: Told | None = None) -> FromLog:
    """The configuration, the assumptions that it rests on, and what is to be asked.

    `log`: with told arguments (`told.with_arguments`); they are known by the log having no line of its own for them.
    """
    told, notes = told or Told(), _Notes()
    arguments = _arguments(log, notes)
    device = arguments.get("device")
    if device not in (None, "cuda"):
        notes.assumed.append(f"the server runs on {str(device)[:40]!r}: only CUDA cards are predicted")
        return notes.result()
    model = _model(log, arguments, told, notes)
    versions = _versions(log)
    gpu, notes.card_known = card_of_log(log, pools, told, notes.assumed)
    if gpu is None:
        notes.ask("gpu", "the card's memory and kind are not known, so nothing is predicted", "--gpu NAME")
    if model is None or gpu is None or not versions:
        found = notes.result()
        if gpu is None or len(versions) != 1 or not arguments:
            return found
        return replace(found, arguments=_without_model(label, log, versions[0], gpu, arguments, told))
    sections = _sections(log, arguments, told, notes)
    problem = ""

    def of(version: str) -> RunConfig | None:
        nonlocal problem
        try:
            return _config(label, log, version, model, gpu, sections)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            problem = f"server_args: {where} = {first.get('input')!r:.90} is not understood"
            return None

    version = versions[-1]
    if len(versions) > 1:
        equal = best(known := explaining(versions, of, log, pools))
        version = equal[0].version if equal else version
        said = ground(known, equal) if equal else f"engine version assumed {version}, the newest that its lines fit"
        notes.assumed.append(said)
        if not equal or any(one.differs(equal[0]) for one in equal[1:]):
            notes.ask("engine version", "other releases that the lines fit predict other figures", "--engine-version V")
    if not is_development(version) and (unread := caveat(version)) is not None:
        notes.assumed.append(unread)
    config = of(version)
    if config is None:
        notes.assumed.append(problem)
    else:
        _complete(config, log, notes)
        if (told_of := absent_ranks(config, pools)) is not None:
            why = f"{told_of}: free memory and pools of the others, one of which may have least, are not logged"
            notes.ask("the other ranks", why, "specbench diagnose LOG LOG …, a log of each node")
    return notes.result(config)


def _without_model(
    label: str, log: ServerLog, version: str, gpu: str, arguments: Mapping[str, Any], told: Told
) -> RunConfig | None:
    """The configuration of a model that is not known; None: its arguments are not understood."""
    try:
        return _config(label, log, version, _NOT_KNOWN, gpu, _sections(log, arguments, told, _Notes()))
    except ValidationError:
        return None


def _complete(config: RunConfig, log: ServerLog, notes: _Notes) -> None:
    """Asks where the engine would refuse the arguments as they are known, and has not."""
    try:
        refused = next((refusal for refusal in check(config) if not refusal.tolerated), None)
    except SpecbenchError:
        return
    if refused is not None and log.weights:
        why = f"as they are known the engine refuses them ({refused.key}: {refused.reason}), and this one loaded"
        notes.ask("arguments", f"{why}: the log does not have all of them", _LAUNCH)


def _arguments(log: ServerLog, notes: _Notes) -> Mapping[str, Any]:
    """Printed, or of a launch command; empty where there is neither."""
    arguments = log.server_args or {}
    if log.server_args_line is not None:
        return arguments
    if log.beside.arguments:
        where = f"the launch command in line {log.beside.line}"
        notes.assumed.append(f"no server_args line: arguments are those of {where}")
    elif arguments:
        notes.assumed.append("no server_args line: arguments are as told")
    else:
        notes.assumed.append("no server_args line: requested values, model and algorithm are not known")
        notes.ask("arguments", "what was asked, the model and the algorithm are not known", _LAUNCH)
    return arguments


def _config(
    label: str, log: ServerLog, version: str, model: str, gpu: str, sections: Mapping[str, dict[str, Any]]
) -> RunConfig:
    """ValidationError for a value that no configuration can have."""
    engine: dict[str, Any] = {"version": version, "allow_refused": True}
    engine |= {"args": sections["args"], "env": sections["env"]}
    if log.version is not None and is_development(log.version):
        engine |= {"version": log.version, "sizing": version}
    data: dict[str, Any] = {
        "name": re.sub(r"[^A-Za-z0-9._+=-]", "_", label).lstrip("._+=-")[:80] or "log",
        "engine": engine,
        "model": model,
        "gpu": {"name": gpu},
        **{name: sections[name] for name in ("parallel", "speculative", "memory")},
    }
    config = RunConfig.model_validate(data)
    return config.replace({"gpu.count": config.parallel.gpus})


def _sections(log: ServerLog, arguments: Mapping[str, Any], told: Told, notes: _Notes) -> Mapping[str, dict[str, Any]]:
    sections = sections_of_printed(arguments)
    speculative = sections["speculative"]
    draft = speculative.pop("draft_model_path", None)
    if draft is not None and draft != arguments.get("model_path"):
        speculative["draft_model_path"] = _draft(str(draft), told, notes)
    return {**sections, "env": {**told.env, **log.beside.env}}


def _draft(path: str, told: Told, notes: _Notes) -> str:
    """A shipped draft by its name; else the one that is told."""
    own = told.arguments.get("speculative_draft_model_path")
    for candidate in (path, own):
        found = named_by(candidate) if isinstance(candidate, str) else None
        if found is not None:
            notes.assumed.append(f"model {path!r} assumed to be {found} (by its name)")
            return found
    if isinstance(own, str):
        notes.assumed.append(f"draft {path!r} taken to be {own!r}, as told")
        return own
    why = f"the draft {path!r:.90} is not known to specbench, so nothing is predicted from this log alone"
    notes.ask("draft model", why, _DRAFT)
    return path


# ── the model ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _model(log: ServerLog, arguments: Mapping[str, Any], told: Told, notes: _Notes) -> str | None:
    """By the path's name, else as told. What is told and cannot be the logged model is not used."""
    path = arguments.get("model_path")
    named = named_by(path) if isinstance(path, str) else None
    if told.model is not None and _may_be(told.model, named, log, notes):
        return told.model
    if named is not None:
        notes.assumed.append(f"model {path!r} assumed to be {named} (by its name)")
        return named
    if not isinstance(path, str):
        notes.assumed.append("the model's path is not in the log")
        why = "the model is not named in the log, so nothing is predicted"
    else:
        notes.assumed.append(f"model {path!r} is not known to specbench, so nothing is predicted from a configuration")
        why = f"the model {path!r:.90} is not known to specbench, so nothing is predicted from a configuration"
    notes.ask("model", why, "--model NAME|FOLDER (a shipped model, or a folder with its config.json)")
    return None


def _may_be(model: str, named: str | None, log: ServerLog, notes: _Notes) -> bool:
    """Whether the log does not speak against the told model: by the name of another shipped one, or by the class that
    it loads. A folder may well be what the log's path names."""
    if named is not None and named_by(model) == model and model != named:
        notes.assumed.append(f"told model {model}, but the log's path names {named}: the log counts")
        return False
    loaded = next((load.model_class for load in log.weights if load.role == "target" and load.model_class), None)
    try:
        told = load_model(model).architecture
    except SpecbenchError:
        return True  # said where its memory is predicted
    if loaded is not None and _family(loaded) != _family(told):
        notes.assumed.append(f"told model {model}, which is {told}, but the log loads {loaded}: the log counts")
        return False
    return True


def _family(model_class: str) -> str:
    """Qwen3_5 of Qwen3_5ForConditionalGeneration and Qwen3_5ForCausalLM: the engine may load another head."""
    return model_class.partition("For")[0]


# ── the release ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _versions(log: ServerLog) -> tuple[str, ...]:
    """Releases that are to be tried, oldest first; one: it is known."""
    if log.version is not None and not is_development(log.version):
        return (log.version,)
    return fitting(log)
