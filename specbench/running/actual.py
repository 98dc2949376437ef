"""The configuration that a run really has, before it runs: for what is predicted and shown first.

In: a configuration as asked. Out: of a replay, made whole by the record; of an attached server, made whole by what that
server says of itself (it is asked, and waited for while it still starts); else as asked.
"""

from __future__ import annotations

from ..configuration.config import RunConfig
from ..lifecycle.attach import Attached
from ..lifecycle.served_config import as_served
from .recorded import whole


def actual(asked: RunConfig) -> RunConfig:
    """LaunchError: the server to attach to is not there. ConfigError: what is stated is not what it has."""
    if asked.engine.attach is None:
        return whole(asked)
    server = Attached(asked)
    server.connect(asked.engine.ready_timeout_s)
    return as_served(asked, server.info).config
