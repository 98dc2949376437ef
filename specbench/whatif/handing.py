"""The changed configuration to take away: a params file, and the exact command line of the server.

In: a configuration. Out: texts, and a file that never replaces another one.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from ..configuration.config import RunConfig
from ..errors import ConfigError
from ..params import dump_run
from ..paths import runs_root
from ..planning.commands import shell_line

_SUFFIX = "what-if"
_LONGEST = 100


def started(config: RunConfig) -> RunConfig:
    """The configuration of a real start: no recording is played, no other server attached to."""
    name = config.name if config.name.endswith(_SUFFIX) else f"{config.name[:_LONGEST]}-{_SUFFIX}"
    return config.replace(
        {
            "name": name,
            "engine.replay": None,
            "engine.replay_speed": 1.0,
            "engine.attach": None,
            "engine.attach_log": None,
        }
    )


def params_text(config: RunConfig) -> str:
    """A params file that `specbench run` and the run notebook take."""
    return dump_run(started(config))


def command_text(config: RunConfig) -> str:
    """The server's command line, for a shell."""
    return shell_line(started(config))


def save(config: RunConfig, folder: Path | None = None) -> Path:
    """Writes the params file and returns its path; a file that is there is kept, and the new one numbered.

    `folder`: None is `what-if` beside the runs. ConfigError (two lines) when nothing can be written there.
    """
    place = runs_root() / _SUFFIX if folder is None else folder
    name = re.sub(r"[^A-Za-z0-9._+=-]", "_", started(config).name)
    text = params_text(config)
    try:
        place.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            path = place / (f"{name}.yaml" if number == 1 else f"{name}.{number}.yaml")
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise ConfigError(f"{place}: not written: {error.strerror}.\nCopy the text instead.") from None
    raise AssertionError("unreachable")
