"""Single runs: from a params file, from a notebook's parameters, from options; and back to a params file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ..configuration.config import RunConfig
from ..errors import ConfigError
from ..paths import resolve
from .overlay import Overrides, laid_over, overridden
from .sections import build, read


def load_run(path: str | Path, overrides: Overrides = ()) -> RunConfig:
    """The run of a params file, with `SECTION.KEY=VALUE` overrides. ConfigError (two lines) when anything is wrong."""
    file = resolve(path, kind="params file")
    return build(overridden(_read_run(file, path), overrides, file.name), file.name)


def load_sections(params: str | Path | None = None, **sections: Any) -> RunConfig:
    """The run that a notebook's parameters cell describes; the names are the sections of a params file.

    With a model the sections are the whole configuration: what is None is left to the defaults, as in a params file
    that lacks it. Without one, `params` (a run file) is the base, and the keys of the given sections are laid over it.
    """
    given = {name: value for name, value in sections.items() if value is not None}
    if params is None or "model" in given:
        return build(given, "parameters")
    file = resolve(params, kind="params file")
    over: dict[str, Any] = {}
    for name, value in given.items():
        over |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return build(
        laid_over(_read_run(file, params), over, "parameters"), f"parameters over {file.name}" if over else file.name
    )


def build_run(sections: Mapping[str, Any], overrides: Overrides = (), where: str = "options") -> RunConfig:
    """The run of sections that come from no file, with overrides; checked and told apart as one of a file."""
    return build(overridden(sections, overrides, where), where)


def dump_run(config: RunConfig) -> str:
    """The params file that loads back equal."""
    return yaml.safe_dump(config.to_sections(), sort_keys=False, allow_unicode=True)


def _read_run(file: Path, path: str | Path) -> dict[str, Any]:
    data = read(file)
    if "campaign" in data:
        raise ConfigError(
            f"{file.name}: this is a campaign (key 'campaign'), a single run was expected.\n"
            f"Give one run file; 'specbench run {shlex.quote(str(path))} --dry-run' predicts all, starts none."
        )
    return data
