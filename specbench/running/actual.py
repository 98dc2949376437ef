"""The configuration that a run really has, before it runs: for what is predicted and shown first.

In: a configuration as asked. Out: of a replay, made whole by the record; of an attached server, made whole by what that
server says of itself (it is asked, and waited for while it still starts); else as asked.
"""

from __future__ import annotations

from ..configuration.config import RunConfig
from .subject import subject


def actual(asked: RunConfig) -> RunConfig:
    """LaunchError: the server to attach to is not there. ConfigError: what is stated is not what it has."""
    return subject(asked).config
