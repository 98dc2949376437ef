"""What a person tells beside a bare log, where the log itself is silent: model, card, version, launch command.

In: answers to what the log cannot tell (`Question`). Out: a log whose arguments are known. What the log says wins: the
answers fill holes, and where they contradict the log that is said.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..configuration.explain import shown
from ..engines.contract import ServerLog
from ..engines.sglang.launch_text import launch_in
from ..engines.sglang.logs.formats import EXAMINED
from ..engines.sglang.sizing import rule_for
from ..errors import ConfigError
from ..gpus import gpu_by_usual_name, load_gpu
from ..specs import by_usual_name, load_model
from ..versions import is_development, nearest_earlier, version_key

#: Printed by the engine as it resolves them, whatever was given.
_RESOLVED = frozenset({"model_path", "speculative_algorithm", "random_seed", "host", "port", "served_model_name"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Answers of the user; None: not told."""

    model: str | None = None  # a shipped model, or a folder with its config.json
    gpu: str | None = None  # a card of the GPU table
    version: str | None = None  # release of the engine
    arguments: Mapping[str, Any] = field(default_factory=dict)  # ServerArgs field -> value, e.g. max_running_requests
    env: Mapping[str, str] = field(default_factory=dict)  # the engine's variables
    server: str | None = None  # which is meant, of a log that several servers wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a log does not tell, and the diagnosis needs."""

    missing: str  # model, gpu, engine version, arguments, draft model
    why: str  # what is not known without it, as a sentence
    answer: str  # the option that tells it, e.g. --gpu NAME


def told_by(
    *, model: str | None, gpu: str | None, version: str | None, launch: str | None, server: str | None = None
) -> Told:
    """Options as given -> Told. ConfigError in two lines for a model, card or version that specbench does not know, and
    for a launch text without a launch command."""
    launched = None if launch is None else launch_in(launch)
    if launch is not None and launched is None:
        raise ConfigError(
            f"--launch: got {shown(launch)}, in which there is no launch command.\n"
            "Expected e.g. --launch 'python -m sglang.launch_server --model-path … --tp 2 …', quoted as a whole."
        )
    if model is not None:
        model = by_usual_name(model)
        load_model(model)
    if gpu is not None:
        gpu = load_gpu(gpu_by_usual_name(gpu), "--gpu").name
    if version is not None:
        rule_for(version)
    return Told(
        model=model,
        gpu=gpu,
        version=version,
        arguments={} if launched is None else launched.arguments,
        env={} if launched is None else launched.env,
        server=server,
    )


def with_arguments(log: ServerLog, told: Told) -> ServerLog:
    """The log with the told version where it names none, and with arguments where it printed none of that name: first
    those of a launch command in it, then told ones. Without any, the log as it is.
    """
    if told.version is not None and log.version is None and fits(told.version, log):
        log = dataclasses.replace(log, version=told.version)
    further = {**told.arguments, **log.beside.arguments}
    if not further:
        return log
    return dataclasses.replace(log, server_args={**further, **(log.server_args or {})})


def fits(version: str, log: ServerLog) -> bool:
    """Whether the log may be of the version: its own, or one with the wording of its lines."""
    if log.version is not None and not is_development(log.version):
        return version_key(version) == version_key(log.version)
    same = nearest_earlier(version, EXAMINED)  # 0.5.12.post1 has the wording of 0.5.12
    low, high = log.version_range
    if same is None:
        return False
    early = low is not None and version_key(same) < version_key(low)
    late = high is not None and version_key(same) > version_key(high)
    return not (early or late)


def contradictions(log: ServerLog, told: Told) -> Iterator[str]:
    """Version and arguments that were told and that the log has otherwise. In: the log as it was read."""
    if told.version is not None and not fits(told.version, log):
        low, high = log.version_range
        lines = f"its lines fit {low or 'any'} to {high or 'any later'}"
        of = lines if log.version is None else f"it is of {log.version}"
        yield f"told version {told.version}, but {of}: the log counts"
    printed = log.server_args or log.beside.arguments
    who = "prints" if log.server_args else "has a launch command with"
    for name, value in told.arguments.items():
        if name in _RESOLVED or name not in printed or printed[name] == value:
            continue
        yield f"told {name}={shown(value)}, but the log {who} {shown(printed[name])}: the log's counts"
