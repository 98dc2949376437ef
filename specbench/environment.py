"""What a record keeps of the machine and the inputs: versions, GPUs, hashes, and what was replayed."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .config import RunConfig
from .emulating import Emulating
from .engines.sglang.acceptance import simulated, variables
from .machine import gpus
from .paths import DATA, exists, expanded, interpreter
from .preflight import Checked
from .record_writer import sha256_text
from .recorded import AsRecorded


def environment(
    config: RunConfig,
    argv: Sequence[str],
    gpu_telemetry: str,
    gpu_memory_after: str | None,
    replayed: AsRecorded | None,
    checked: Checked,
    emulated: Emulating | None = None,
) -> dict[str, Any]:
    """The content of env.json. Unknown facts are None.

    `machine` is where the figures come from: of a replay the machine on which it was recorded. The machine that played
    it is in `replay`. `checked` is what was found of the engine before a real start.
    """
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
            "installed": checked.installed,
            "python": interpreter(config.engine.python),
            "capabilities": _capabilities(checked),
        },
        "machine": _machine() if replayed is None else replayed.record.env.get("machine"),
        "environment": {**config.engine.env, **variables(config)},
        "simulated_acceptance": (
            simulated(config, None if config.engine.attach else os.environ) or None
            if replayed is None
            else replayed.record.env.get("simulated_acceptance")
        ),
        "emulation": _emulation(replayed, emulated),
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


def _capabilities(checked: Checked) -> dict[str, Any] | None:
    """What the installed engine was found to have; None: no engine of this machine was started."""
    engine = checked.engine
    if engine is None or engine.has is None:
        return None
    has = engine.has
    return {
        "algorithms": None if has.algorithms is None else list(has.algorithms),
        "flags": None if has.flags is None else len(has.flags),
        "known_from": has.source,
        "plugins": list(engine.plugins),
    }


def _emulation(replayed: AsRecorded | None, emulated: Emulating | None) -> dict[str, Any] | None:
    """Both fractions and the arithmetic between them; None: no other card is emulated."""
    if replayed is not None:
        recorded = replayed.record.env.get("emulation")
        return recorded if isinstance(recorded, dict) else None
    if emulated is None:
        return None
    return {**dataclasses.asdict(emulated.emulation), "arithmetic": emulated.emulation.arithmetic}


def _replay(config: RunConfig, replayed: AsRecorded) -> dict[str, Any]:
    record = replayed.record
    return {
        "source": config.engine.replay,
        "name": record.name,
        "sha256": record.sha256(),
        "speed": config.engine.replay_speed,
        "engine_version": record.config.engine.version,
        "taken_from_the_record": dict(replayed.taken),
        "differences": {key: list(pair) for key, pair in replayed.differences.items()},
        "played_on": _machine(),
    }


def _config_hash(model: str | None) -> str | None:
    """sha256 of the model's config.json, shipped or in a folder; None: there is none here, or no model."""
    if model is None:
        return None
    for folder in (expanded(Path(model)), DATA / "models" / model.replace("/", "--")):
        if exists(folder / "config.json"):
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
