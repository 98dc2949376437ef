"""The command line of a plan, to copy, and what differs from the one that was given."""

from __future__ import annotations

import shlex

from ..configuration.config import RunConfig
from ..engines.sglang.command import command

_PORT = 30000


def server_command(config: RunConfig) -> list[str]:
    """argv of the server, with `python` where the configuration names no interpreter of the engine's own."""
    section, paths = config.engine, config.engine.model_paths
    draft = config.speculative.draft_model_path
    argv = command(
        config,
        model_path=paths.get(config.model, config.model),
        draft_path=None if draft is None else paths.get(draft, draft),
        host=section.host,
        port=section.port or _PORT,
    )
    return argv if section.python is not None else ["python", *argv[1:]]


def shell_line(config: RunConfig) -> str:
    """For a shell: variables of the environment first, all words quoted."""
    environment = [f"{name}={shlex.quote(value)}" for name, value in config.engine.env.items()]
    return " ".join([*environment, shlex.join(server_command(config))])


def difference(before: RunConfig, after: RunConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Flags that go, and flags that come, each with its value, in the order of the command line."""
    old, new = _flags(server_command(before)), _flags(server_command(after))
    gone = tuple(text for flag, text in old.items() if new.get(flag) != text)
    come = tuple(text for flag, text in new.items() if old.get(flag) != text)
    return gone, come


def _flags(argv: list[str]) -> dict[str, str]:
    """--flag -> '--flag value'."""
    groups: list[list[str]] = []
    for word in argv[3:]:
        if word.startswith("--"):
            groups.append([word])
        elif groups:
            groups[-1].append(word)
    return {group[0]: shlex.join(group) for group in groups}
