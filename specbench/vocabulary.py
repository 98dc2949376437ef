"""How many token ids the model of a run knows. In: its configuration. Out: `vocab_size` of the config.json that the
engine reads, or None when there is none here to read (an attached server's may lie elsewhere).

Any config.json will do, also of a model that nothing else here can compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .configuration.config import RunConfig
from .errors import ConfigError, SpecError
from .hf import read_config
from .paths import exists, resolve
from .specs import shipped_folder


def vocabulary(config: RunConfig) -> int | None:
    for folder in _folders(config):
        if exists(folder / "config.json"):
            return _size(folder, config.model)
    return None


def _folders(config: RunConfig) -> Iterator[Path]:
    """Where the engine finds the model first: what a shipped model is called may lie in a folder of this machine."""
    for place in (config.engine.model_paths.get(config.model), config.model):
        if place is not None:
            try:
                yield resolve(place, kind="model")
            except ConfigError:  # a published name
                continue
    shipped = shipped_folder(config.model)
    if shipped is not None:
        yield shipped


def _size(folder: Path, name: str) -> int | None:
    try:
        whole = read_config(folder / "config.json", name)
        text = whole.section_or_none("text_config")
        return (text if text is not None and "vocab_size" in text.data else whole).integer("vocab_size")
    except SpecError:
        return None
