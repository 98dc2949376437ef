"""A configuration of nothing but a model, cards and an algorithm: where planning starts without a params file."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

from .. import speculative
from ..configuration.config import RunConfig
from ..configuration.explain import listed, problem_text
from ..engines.sglang.sizing import VERSIONS_READ
from ..engines.sglang.splitting import uneven
from ..errors import ConfigError
from ..gpus import gpu_by_usual_name, load_gpu
from ..params import Overrides, build_run
from ..specs import by_usual_name, known_models, load_model
from .wishes import check_gpus

NEWEST = VERSIONS_READ[-1]
_NAME = "plan"
#: What a quantized checkpoint's name has after its original's.
_QUANTIZED = re.compile(r"-(fp8|nvfp4|mxfp4|awq|gptq|int4|int8|bf16)\b.*", re.IGNORECASE)


def from_scratch(
    *,
    model: str,
    gpu: str,
    gpus: int = 1,
    version: str = NEWEST,
    algorithm: str = "none",
    draft: str | None = None,
    context: int | None = None,
    overrides: Overrides = (),
) -> tuple[RunConfig, tuple[str, ...]]:
    """On all of the cards, or as many of them as the model divides over; and notes of what was chosen.

    Model and card may have their usual names ('DeepSeek-V3', 'RTX PRO 6000'). ConfigError in two lines, as of a params
    file.
    """
    notes: list[str] = []
    given, model, gpu = (model, gpu), by_usual_name(model), gpu_by_usual_name(gpu)
    if model != given[0]:
        notes.append(f"model: {model}, the shipped one of that name")
    load_gpu(gpu, "--gpu")
    check_gpus(gpus)
    name = speculative.canonical(algorithm)
    if name != "none":
        speculative.get(name)
    if draft is None and name == "DFLASH":
        draft = _own_draft(model)
        notes += [] if draft is None else [f"draft: {draft}, the shipped one of {model}"]
    sections: dict[str, Any] = {
        "name": _NAME,
        "engine": {"name": "sglang", "version": version},
        "model": model,
        "gpu": {"name": gpu, "count": gpus},
        "speculative": {"algorithm": name} | ({} if draft is None else {"draft_model_path": draft}),
        "memory": {} if context is None else {"context_length": context},
    }
    if not any(text.partition("=")[0].strip() == "parallel.tp_size" for text in overrides):
        ranks = _ranks(sections, gpus)
        sections["parallel"] = {"tp_size": ranks}
        if ranks < gpus:
            notes.append(f"{model} does not divide over {gpus} ranks: planned from TP{ranks}")
    try:
        return build_run(sections, overrides, "options"), tuple(notes)
    except ConfigError as error:
        if draft is None and str(error).startswith("options: speculative.draft_model_path:"):
            raise ConfigError(_no_draft(name, model)) from error
        # From 0.5.10 to 0.5.13 `auto` is refused with speculation: the strategy that the engine names is stated.
        if "mamba_radix_cache_strategy" not in str(error):
            raise
        sections["memory"] |= {"mamba_radix_cache_strategy": "extra_buffer"}
        notes.append(f"SGLang {version} takes speculation with a prefix cache with the strategy extra_buffer only")
        return build_run(sections, overrides, "options"), tuple(notes)


def _own_draft(model: str) -> str | None:
    """A quantized checkpoint has its original's: the draft reads hidden states, which have the same shape."""
    name = model.rstrip("/").rpartition("/")[2]
    wanted = {f"/{each}-DFlash".lower() for each in (name, _QUANTIZED.sub("", name))}
    found = [name for name in known_models() if any(name.lower().endswith(each) for each in wanted)]
    return found[0] if len(found) == 1 else None


def _no_draft(algorithm: str, model: str) -> str:
    shipped = [name for name in known_models() if algorithm.lower() in name.lower()]
    return (
        f"--algorithm {algorithm}: it needs a draft model, and none is shipped for {model}.\n"
        f"Give --draft: a folder with config.json{''.join(f', {name}' for name in shipped)}."
    )


def _ranks(sections: dict[str, Any], gpus: int) -> int:
    """The most ranks on so many cards over which model and draft divide."""
    target = load_model(sections["model"])
    path = sections["speculative"].get("draft_model_path")
    draft = load_model(path) if path else None
    for ranks in range(gpus, 0, -1):
        try:
            config = RunConfig.model_validate(sections | {"parallel": {"tp_size": ranks}})
        except ValidationError as error:
            raise ConfigError(problem_text(error.errors(include_url=False)[0], RunConfig, "options")) from None
        if uneven(config, target, draft) is None:
            return ranks
    raise ConfigError(
        f"--gpus: {sections['model']} divides over no number of ranks up to {gpus}.\nModels: {listed(known_models())}."
    )
