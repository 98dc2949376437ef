"""A configuration from a bare log, as far as the log tells it: the engine prints its own arguments.

What the log cannot tell (the model's config.json, the card) is matched against what specbench ships and named as an
assumption. When the model is unknown there is no configuration, and the diagnosis rests on the log alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ..configuration.config import MemorySection, ParallelSection, RunConfig
from ..engines.contract import PoolReport, ServerLog
from ..gpus import known_gpus, load_gpu
from ..specs import named_by
from .told import Told

#: server_args name -> our key, where they differ.
_SPECULATIVE = {
    "num_draft_tokens": "speculative_num_draft_tokens",
    "num_steps": "speculative_num_steps",
    "eagle_topk": "speculative_eagle_topk",
}
_OLD_STRATEGY = "mamba_scheduler_strategy"


def config_of_log(
    log: ServerLog, pools: PoolReport, label: str, told: Told | None = None
) -> tuple[RunConfig | None, tuple[str, ...]]:
    """The configuration and the assumptions it rests on; None with the reasons when it cannot be told."""
    told = told or Told()
    arguments = log.server_args
    if arguments is None:
        return None, ("no server_args line: requested values, model and algorithm are not known",)
    assumed: list[str] = []
    device = arguments.get("device")
    if device not in (None, "cuda"):
        return None, (f"the server runs on {str(device)[:40]!r}: only CUDA cards are predicted",)
    model = told.model or _model(arguments.get("model_path"), assumed)
    version = told.version or _version(log, assumed)
    gpu = told.gpu or _gpu(pools, assumed)
    if model is None or version is None or gpu is None:
        return None, tuple(assumed)
    sections: dict[str, Any] = {
        "name": re.sub(r"[^A-Za-z0-9._+=-]", "_", label).lstrip("._+=-")[:80] or "log",
        "engine": {"version": version, "allow_refused": True},
        "model": model,
        "gpu": {"name": gpu},
        "parallel": _fields(ParallelSection, arguments),
        "speculative": _speculative(arguments, assumed),
        "memory": _memory(arguments),
    }
    try:
        config = RunConfig.model_validate(sections)
        return config.replace({"gpu.count": config.parallel.gpus}), tuple(assumed)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        return None, (*assumed, f"server_args: {where} = {problem.get('input')!r} is not understood")


def _fields(section: type[ParallelSection | MemorySection], arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: arguments[name] for name in section.model_fields if arguments.get(name) is not None}


def _memory(arguments: Mapping[str, Any]) -> dict[str, Any]:
    memory = _fields(MemorySection, arguments)
    if "mamba_radix_cache_strategy" not in memory and arguments.get(_OLD_STRATEGY) is not None:
        memory["mamba_radix_cache_strategy"] = arguments[_OLD_STRATEGY]
    return memory


def _speculative(arguments: Mapping[str, Any], assumed: list[str]) -> dict[str, Any]:
    algorithm = arguments.get("speculative_algorithm")
    if algorithm is None:
        return {"algorithm": "none"}
    section = {key: arguments[flag] for key, flag in _SPECULATIVE.items() if arguments.get(flag) is not None}
    draft = arguments.get("speculative_draft_model_path")
    if draft is not None and draft != arguments.get("model_path"):
        section["draft_model_path"] = _model(draft, assumed) or draft
    return {"algorithm": algorithm, **section}


def _model(path: Any, assumed: list[str]) -> str | None:
    """A shipped model whose name the path ends with, compared by letters and digits alone."""
    if not isinstance(path, str):
        assumed.append("the model's path is not in the log")
        return None
    found = named_by(path)
    if found is None:
        assumed.append(
            f"model {path!r} is not known to specbench, so nothing is predicted from this log alone; "
            "`specbench predict` takes a params file whose model is a folder with its config.json"
        )
        return None
    assumed.append(f"model {path!r} assumed to be {found} (by its name)")
    return found


def _version(log: ServerLog, assumed: list[str]) -> str | None:
    if log.version is not None:
        return log.version
    low, high = log.version_range
    version = low or high
    if version is None:
        assumed.append("the engine's version is not in the log")
    else:
        assumed.append(f"engine version assumed {version}: the lines fit {low or 'any'} to {high or 'any later'}")
    return version


def _gpu(pools: PoolReport, assumed: list[str]) -> str | None:
    """The smallest card that had the logged memory free."""
    if not pools.pre:
        assumed.append("free memory before loading is not in the log, so the card cannot be told")
        return None
    free = max(quantity.bytes for quantity in pools.pre.values())
    fitting = [gpu for gpu in map(load_gpu, known_gpus()) if gpu.total_bytes >= free]
    if not fitting:
        assumed.append("no card of the GPU table had that much memory free")
        return None
    gpu = min(fitting, key=lambda candidate: candidate.total_bytes)
    assumed.append(f"GPU assumed {gpu.name} (the smallest card of the table with that much memory free)")
    return gpu.name
