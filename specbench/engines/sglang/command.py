"""The server's command line for a configuration, and the flags of a change. Flag names by version are in `flags.py`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ... import speculative
from ...configuration.config import RunConfig
from ...paths import interpreter
from .flags import FLAGS, facts_version, flag_name

#: Values that mean "leave it to the engine", beside None.
_UNSAID: dict[str, Any] = {
    "parallel.tp_size": 1,
    "parallel.pp_size": 1,
    "parallel.dp_size": 1,
    "memory.kv_cache_dtype": "auto",
    "memory.mamba_radix_cache_strategy": "auto",
    "speculative.algorithm": "none",
}


def command(
    config: RunConfig,
    *,
    model_path: str,
    draft_path: str | None,
    host: str,
    port: int,
    passed_fraction: float | None = None,
) -> list[str]:
    """argv of the server: model, address, our keys as flags, then `engine.args` as they are.

    `passed_fraction`: the fraction that emulates a smaller card by measured memory; None: by the GPU table.
    """
    version = facts_version(config.engine)
    argv = [
        interpreter(config.engine.python),
        "-m",
        "sglang.launch_server",
        "--model-path",
        model_path,
        "--host",
        host,
        "--port",
        str(port),
    ]
    sections = config.to_sections()
    for key in FLAGS:
        section, _, name = key.partition(".")
        value = draft_path if key == "speculative.draft_model_path" else sections[section][name]
        if key == "memory.mem_fraction_static" and config.gpu.emulate is not None:
            value = passed_fraction or _passed_fraction(config)
        if value is not None and value != _UNSAID.get(key):
            argv.extend(_words(_known_flag(key, version), _spelled(key, value)))
    for given, value in config.engine.args.items():
        argv.extend(_words("--" + given.lstrip("-").replace("_", "-"), value))
    return argv


def flags_for(changes: Mapping[str, Any], version: str) -> str:
    """The server flags that make a change, for a shell: {"memory.disable_radix_cache": True} -> --disable-radix-cache.

    A change that is no flag (another GPU, a value given back to the engine) adds nothing.
    """
    words: list[str] = []
    for key, value in changes.items():
        if key.startswith("engine.args."):
            words.extend(_words("--" + key.removeprefix("engine.args.").lstrip("-").replace("_", "-"), value))
            continue
        flag = "--port" if key == "engine.port" else flag_name(key, version)
        if flag is not None and value is not None and value != _UNSAID.get(key):
            words.extend(_words(flag, _spelled(key, value)))
    return shlex.join(words)


def _known_flag(key: str, version: str) -> str:
    """0.5.6 has no strategy flag; `checks` refuses the value, `allow_refused` wants to see the engine's own error."""
    return flag_name(key, version) or "--mamba-scheduler-strategy"


def _spelled(key: str, value: Any) -> Any:
    return speculative.canonical(value) if key == "speculative.algorithm" else value


def _words(flag: str, value: Any) -> Iterable[str]:
    """true: the bare flag. false and null: nothing. A list: the flag once, then every item."""
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, list | tuple):
        return [flag, *map(str, value)]
    return [flag, str(value)]


def _passed_fraction(config: RunConfig) -> float:
    """The fraction of the real card that is the smaller card's budget."""
    from .resolve import settings

    return settings(config).passed().fraction
