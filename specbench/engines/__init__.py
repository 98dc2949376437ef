"""One folder per serving engine. specbench never imports an engine: it starts it as a process and reads its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import RunConfig
    from .sglang.checks import Refusal


def check(config: RunConfig) -> Sequence[Refusal]:
    """What the configured engine version refuses of this configuration, most basic first. Empty: nothing known."""
    from .sglang import checks

    return checks.check(config)
