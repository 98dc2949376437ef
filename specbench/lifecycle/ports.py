"""Where a server listens: whether it can where it is asked to, and a free port where nobody asks."""

from __future__ import annotations

import contextlib
import secrets
import socket
from pathlib import Path

from ..configuration.config import RunConfig
from ..errors import ConfigError, LaunchError
from ..host import processes

#: Ports below are those of known services; an engine opens others up to a thousand above its own.
_LOWEST_PORT, _OTHER_PORTS, _PORT_TRIES = 10_000, 1_100, 100
#: Of Linux, when it is not told.
_FIRST_EPHEMERAL = 32_768


def check_address(config: RunConfig) -> None:
    """LaunchError when a server cannot listen where it is asked to, ConfigError for variables that cannot be passed."""
    host, port = config.engine.host, config.engine.port
    problem = processes.why_not_bindable(host, 0)
    if problem is not None:
        raise LaunchError(
            f"engine.host: {host!r} cannot be bound on this machine: {problem}.\n"
            "Use 127.0.0.1, or an address of this machine."
        )
    problem = None if port is None else processes.why_not_bindable(host, port)
    if problem is not None:
        raise LaunchError(
            f"engine.port: {port} on {host} cannot be bound: {problem}.\n"
            "End that process or take another port; leave engine.port out for a free one."
        )
    for name, value in config.engine.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(
                f"engine.env: {name!r}: {value[:80]!r} cannot be an environment variable.\n"
                "Expected a name without '=', and no NUL character in name or value."
            )


def free_port(host: str) -> int:
    """A port that is free at this moment, and that no outgoing connection takes while an engine starts for minutes.

    Drawn below the range of such connections; where that leaves no room, the system's choice.
    """
    for _ in range(_PORT_TRIES):
        port = _LOWEST_PORT + secrets.randbelow(max(1, _first_ephemeral() - _OTHER_PORTS - _LOWEST_PORT))
        if port < _first_ephemeral() and processes.why_not_bindable(host, port) is None:
            return port
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _first_ephemeral() -> int:
    """The lowest port that the system gives to outgoing connections."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    return _FIRST_EPHEMERAL
