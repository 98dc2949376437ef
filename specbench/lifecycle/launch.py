"""A server as a context manager: start it under the supervisor, wait until it is ready, end its whole tree.

In: a RunConfig and where the log goes. Out: a `Server`. With `engine.replay` the replay process is started instead of
the engine; everything else is the same code.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..configuration.config import RunConfig
from ..paths import folder_or_name, resolve
from . import temporary
from .hanging import Hanging
from .ports import check_address, free_port
from .server import Server, own_environment


@contextlib.contextmanager
def launch(
    config: RunConfig,
    *,
    log_path: Path,
    tick: Callable[[float], None] | None = None,
    passed_fraction: float | None = None,
    gpus: Sequence[int] | None = None,
    ready_within_s: float = float("inf"),
) -> Iterator[Server]:
    """Starts the configured server and waits for it. `tick` is called with the seconds waited so far. `gpus`: those
    whose memory must be back at the end (NVML indices); None: all of this machine. `ready_within_s`: a bound for the
    wait beside that of the configuration.

    Whatever ends the `with` block (an exception, Ctrl-C, the death of this process), the whole tree is ended.
    """
    from ..engines.sglang.acceptance import variables

    host = config.engine.host
    check_address(config)
    port = config.engine.port or free_port(host)
    temporary.sweep()
    server = Server(
        server_argv(config, host, port, passed_fraction),
        host=host,
        port=port,
        log_path=log_path,
        env={**(own_environment() if config.engine.replay else os.environ), **config.engine.env, **variables(config)},
        gpus=() if config.engine.replay else gpus,
        own_folder=None if config.engine.replay else temporary.of_an_engine(config.engine.env),
    )
    try:
        # Of a replay the pace is that of the recording, and it ends as that did.
        hanging = None if config.engine.replay else Hanging(log_path, port)
        server.wait_ready(min(config.engine.ready_timeout_s, ready_within_s), tick, hanging)
        yield server
        server.settle()
    finally:
        server.stop()


def server_argv(config: RunConfig, host: str, port: int, passed_fraction: float | None = None) -> list[str]:
    """The exact argument list: of the engine, or of the replay that stands in for it."""
    if config.engine.replay is not None:
        record = resolve(config.engine.replay, kind="engine.replay")
        place = ["--host", host, "--port", str(port), "--speed", str(config.engine.replay_speed)]
        return [sys.executable, "-m", "specbench.replay", str(record), *place]
    from ..engines.sglang.command import command

    draft, places = config.speculative.draft_model_path, config.engine.model_paths
    return command(
        config,
        model_path=folder_or_name(places.get(config.model, config.model)),
        draft_path=None if draft is None else folder_or_name(places.get(draft, draft)),
        host=host,
        port=port,
        passed_fraction=passed_fraction,
    )
