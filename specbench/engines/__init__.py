"""One folder per serving engine. specbench never imports an engine: it starts it as a process and reads its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..configuration.config import EngineSection, RunConfig
    from .sglang.checks import Refusal


def check(config: RunConfig) -> Sequence[Refusal]:
    """What the configured engine version refuses of this configuration, most basic first. Empty: nothing known."""
    from .sglang import checks

    return checks.check(config)


def reject_keyed(engine: EngineSection, where: str = "") -> None:
    """ConfigError when `engine.args` holds a flag that has a key of its own, in any spelling. `where`: the file."""
    from .sglang import arguments

    arguments.reject_keyed(engine, where)


def key_of_flag(spelling: str) -> str | None:
    """The configuration key of a server flag, however it is spelled; None: no flag, or one without a key."""
    from .sglang import flags

    return flags.key_of_flag(spelling)
