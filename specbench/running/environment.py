"""What a record keeps of the machine and the inputs: versions, GPUs, hashes, and what was replayed."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..configuration.config import RunConfig
from ..configuration.secret_names import shown
from ..engines.sglang.acceptance import simulated, variables
from ..engines.sglang.addresses import SERVER_INFO
from ..engines.sglang.given import server_args
from ..host.machine import gpus
from ..lifecycle.attach import Attached
from ..lifecycle.emulating import Emulating
from ..lifecycle.preflight import Checked
from ..paths import DATA, PACKAGE, exists, expanded, interpreter
from ..records.writer import sha256_text
from ..replay.itself import INSTANT, Played
from .recorded import AsRecorded

#: Beginnings of variables that SGLang, CUDA and what lies between them heed.
_HEEDED = (
    *("SGLANG_", "SGL_", "CUDA_", "NCCL_", "NVSHMEM_", "NVIDIA_", "TORCH_", "PYTORCH_", "TRITON_", "FLASHINFER_"),
    *("OMP_", "SPECBENCH_SIM"),
)


def environment(
    config: RunConfig,
    argv: Sequence[str],
    gpu_telemetry: str,
    gpu_memory_after: str | None,
    replayed: AsRecorded | None,
    checked: Checked,
    emulated: Emulating | None = None,
    added_env: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The content of env.json. Unknown facts are None.

    `machine` is where the figures come from: of a replay the machine on which it was recorded. The machine that played
    it is in `replay`. `checked` is what was found of the engine before a real start, `added_env` what the start gave it
    beside the variables that were asked for.
    """
    from .. import __version__

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
            "packages": _packages(checked),
            "torch_cuda": checked.engine.torch_cuda if checked.engine is not None else None,
        },
        "machine": _machine() if replayed is None else replayed.record.env.get("machine"),
        "environment": shown({**config.engine.env, **variables(config), **added_env}),
        "inherited_environment": _inherited(config) if replayed is None else None,
        "seeds": {"workload": config.workload.seed, "engine": _engine_seed(config)},
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


def of_attached(env: Mapping[str, Any], server: Attached, played: Played | None) -> dict[str, Any]:
    """`env` as that of a server which somebody else started. `played`: the record that it played; None: an engine."""
    elsewhere = {**env["machine"], "driver": None, "gpus": None, "reason": server.not_sampled}
    here = env["machine"] if server.is_local else elsewhere
    found = {
        **env,
        "engine": {**env["engine"], "version_from": SERVER_INFO[0], "python": None},
        "machine": here,
        "environment": {},
        "attach": {"url": server.url, "version": server.version, "key_sent": bool(server.headers)},
    }
    return found if played is None else {**found, **_replayed(played, server, here)}


def _packages(checked: Checked) -> dict[str, str] | None:
    """Versions in the engine's interpreter, of those that it has; None: no engine of this machine was started."""
    if checked.engine is None or not checked.engine.packages:
        return None
    return {name: version for name, version in checked.engine.packages.items() if version is not None}


def _inherited(config: RunConfig) -> dict[str, str] | None:
    """Variables of this environment that an engine heeds, without those that `engine.env` sets; None: attached."""
    if config.engine.attach:
        return None
    heeded = {name: value for name, value in os.environ.items() if name.startswith(_HEEDED)}
    return shown({name: value for name, value in sorted(heeded.items()) if name not in config.engine.env})


def _engine_seed(config: RunConfig) -> int | None:
    """As asked; None: the engine draws one, and tells it in /server_info."""
    seed = server_args(config).get("random_seed")
    return seed if isinstance(seed, int) and not isinstance(seed, bool) else None


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


def _replayed(played: Played, server: Attached, here: Mapping[str, Any]) -> dict[str, Any]:
    """As a replay of our own has it: the machine of the recording, and what was replayed where."""
    return {
        "machine": played.machine,
        "emulation": played.emulation,
        "simulated_acceptance": played.simulated_acceptance,
        "replay": {
            "source": server.url,
            "name": played.name,
            "sha256": played.sha256,
            "speed": INSTANT if played.speed is None else played.speed,
            "engine_version": server.version,
            "played_on": dict(here),
        },
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
        "driver_cuda": state.cuda,
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "gpus": [{"name": gpu.name, "total_bytes": gpu.total_bytes} for gpu in state.gpus] or None,
        "reason": state.reason,
    }


def _cpu() -> str | None:
    """The processor's name; None: this system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _commit() -> str | None:
    """The source checkout's commit; None when specbench is installed without one."""
    root = PACKAGE.parent
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
