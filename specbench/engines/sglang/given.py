"""What a configuration gives the server beside its keys. In: `engine.args`, `engine.env`. Out: values, by the engine's
own names and by its own reading of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...configuration.config import RunConfig

_TRUE = ("true", "1", "yes", "y")


def server_args(config: RunConfig) -> dict[str, Any]:
    """engine.args by underscored name, whatever the spelling."""
    return {arg_name(spelling): value for spelling, value in config.engine.args.items()}


def spelled(config: RunConfig | None, flag: str) -> str:
    """The key of a flag that has none of its own, in the spelling that a configuration has it in already."""
    given = () if config is None else config.engine.args
    found = next((one for one in given if arg_name(one) == arg_name(flag)), flag)
    return f"engine.args.{found}"


def arg_name(spelling: str) -> str:
    """The underscored name of a flag, as the engine has it among its arguments: --load-format is load_format."""
    return spelling.lstrip("-").replace("-", "_")


def switched_on(env: Mapping[str, str], name: str, default: bool = False) -> bool:
    """A variable that is a switch, as SGLang's srt/environ.py (EnvBool) reads it; it refuses other texts."""
    return env[name].lower() in _TRUE if name in env else default


def allows_longer_context(config: RunConfig) -> bool:
    """Whether a context longer than the model's own is taken."""
    return switched_on(config.engine.env, "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")
