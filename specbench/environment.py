"""What a record keeps of the machine and the inputs: versions, GPUs, hashes, and what was replayed."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .config import RunConfig
from .machine import gpus
from .paths import DATA
from .record import RunRecord
from .record_writer import sha256_text

#: Sections that decide what a server does; a replay that differs in them plays another configuration.
_COMPARED = ("model", "gpu", "parallel", "speculative", "memory")


def environment(
    config: RunConfig,
    argv: Sequence[str],
    gpu_telemetry: str,
    gpu_memory_after: str | None,
    replayed: RunRecord | None,
) -> dict[str, Any]:
    """The content of env.json. Unknown facts are None."""
    from . import __version__

    return {
        "specbench": __version__,
        "specbench_commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "engine": {
            "name": config.engine.name,
            "version": config.engine.version,
            "version_from": "the configuration",
            "python": config.engine.python or sys.executable,
        },
        "machine": _machine() if replayed is None else replayed.env.get("machine"),
        "environment": dict(config.engine.env),
        "simulated_acceptance": None if replayed is None else replayed.env.get("simulated_acceptance"),
        "gpu_telemetry": gpu_telemetry,
        "gpu_memory_after": gpu_memory_after,
        "argv_sha256": sha256_text("\0".join(argv)),
        "inputs_sha256": {
            "params": sha256_text(config.model_dump_json()),
            "model": _config_hash(config.model),
            "draft": _config_hash(config.speculative.draft_model_path),
        },
        "replay": None if replayed is None else _replay(config, replayed),
    }


def _replay(config: RunConfig, replayed: RunRecord) -> dict[str, Any]:
    return {
        "source": config.engine.replay,
        "name": replayed.name,
        "sha256": replayed.sha256(),
        "speed": config.engine.replay_speed,
        "engine_version": replayed.config.engine.version,
        "differences": differences(config, replayed.config),
    }


def differences(asked: RunConfig, recorded: RunConfig) -> dict[str, list[Any]]:
    """Dotted key -> [asked, recorded] where a configuration is not the one that was recorded."""
    found: dict[str, list[Any]] = {}
    mine, theirs = asked.to_sections(), recorded.to_sections()
    for section in _COMPARED:
        if not isinstance(mine[section], dict):
            if mine[section] != theirs[section]:
                found[section] = [mine[section], theirs[section]]
            continue
        for key, value in mine[section].items():
            if value != theirs[section].get(key):
                found[f"{section}.{key}"] = [value, theirs[section].get(key)]
    if asked.engine.version != recorded.engine.version:
        found["engine.version"] = [asked.engine.version, recorded.engine.version]
    return found


def _config_hash(model: str | None) -> str | None:
    """sha256 of the model's config.json, shipped or in a folder; None: there is none here, or no model."""
    if model is None:
        return None
    for folder in (Path(model).expanduser(), DATA / "models" / model.replace("/", "--")):
        if (folder / "config.json").is_file():
            return sha256_text((folder / "config.json").read_text(encoding="utf-8"))
    return None


def _machine() -> dict[str, Any]:
    """GPUs and driver by NVML; the reason when there is no NVML."""
    state = gpus()
    return {
        "utc_offset_s": -(time.altzone if time.localtime().tm_isdst else time.timezone),
        "driver": state.driver,
        "gpus": [{"name": gpu.name, "total_bytes": gpu.total_bytes} for gpu in state.gpus] or None,
        "reason": state.reason,
    }


def _commit() -> str | None:
    """The source checkout's commit; None when specbench is installed without one."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
