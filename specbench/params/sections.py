"""Sections -> RunConfig: read from a file, checked against the keys there are and against the engine's own refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..configuration.config import SECTIONS, RunConfig
from ..configuration.explain import listed, near_miss, one_line, problem_text, shown
from ..configuration.secret_names import refuse_secrets
from ..configuration.yamltext import read_mapping
from ..engines import check, reject_keyed
from ..errors import ConfigError
from ..gpus import gpu_by_usual_name
from .overlay import meant


def read(file: Path) -> dict[str, Any]:
    """What a params file says, of a run or of a campaign."""
    return read_mapping(file, expected=f"the sections {listed(SECTIONS)}")


def build(data: Mapping[str, Any], where: str) -> RunConfig:
    """The run of all its sections. ConfigError for what is none, or what the engine's version refuses."""
    reject_unknown(data, SECTIONS, where)
    # A section that is present but empty ("memory:") is an empty section, not a wrong one.
    filled = {key: {} if value is None and key not in ("name", "model") else value for key, value in data.items()}
    filled |= {"gpu": _cards(filled["gpu"])} if isinstance(filled.get("gpu"), dict) else {}
    try:
        config = RunConfig.model_validate(filled)
    except ValidationError as error:
        raise ConfigError(problem_text(error.errors(include_url=False)[0], RunConfig, where)) from None
    reject_keyed(config.engine, where)
    refuse_secrets(config.engine, where)
    if not config.engine.allow_refused:
        for refusal in check(config):
            raise ConfigError(
                f"{where}: {refusal.key}: got {shown(refusal.value)}: SGLang {config.engine.version} refuses this: "
                f"{one_line(refusal.reason)}.\n"
                f"Allowed: {refusal.allowed}. ({refusal.if_allowed}.)"
            )
    return config


def _cards(section: dict[str, Any]) -> dict[str, Any]:
    """Cards by their usual names, as everywhere else: '5090', which YAML reads as a number, is rtx-5090."""

    def row(value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        return gpu_by_usual_name(value) if isinstance(value, str) else value

    return {key: row(value) if key in ("name", "emulate") else value for key, value in section.items()}


def reject_unknown(data: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    """ConfigError for the first key that is not allowed."""
    for key in data:
        if key not in allowed:
            hint = near_miss(str(key), allowed) or (meant(str(key)) if allowed is SECTIONS else "")
            raise ConfigError(f"{where}: {key}: no such key{hint}.\nAllowed here: {listed(allowed)}.")
