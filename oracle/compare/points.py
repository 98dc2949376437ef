"""A configuration with a card and its free memory: what the engine is asked, and what specbench predicts.

In: the sections of a params file and memory figures. Out: the question for the engine (its own command line), and
specbench's answer in the engine's terms. The non-obvious thing: the figures in memory are given to both sides, so
neither weights nor tables of GPUs have a part in the comparison.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench import gpus, specs
from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.checks import check
from specbench.engines.sglang.command import command
from specbench.engines.sglang.demand import demand, rest_gib, units
from specbench.engines.sglang.resolve import settings
from specbench.engines.sglang.sizing.steps import solve
from specbench.errors import SpecbenchError
from specbench.units import MIB, Interval

#: Of each refusal that comes from the sizing itself: how its text begins, for every release.
KINDS: dict[str, str] = {
    "no_state": "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache.",
    "no_room": "ValueError: Loaded weights leave no GPU memory for the KV cache",
    "not_enough_memory": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    "state_too_small": "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests.",
    "window_too_small": "ValueError: SWA pool (",
    "window_cap_too_large": "RuntimeError: SWA pool cap (",
}
#: A config.json that is read by code which its checkpoint brings, or that a release reads otherwise than published.
_UNREAD = ("does not recognize this architecture", "Glm5NextVisionConfig.__init__() missing")
NOT_COMPARED = ("unsized", "beyond")
#: Refusals that come as a model's layers are built, or as a prefix cache is, when the pools stand: the oracle does
#: neither, and would go on to the pools, or end with them.
BUILDING = (
    "AssertionError: Only 1 nextn layer is supported",
    "AssertionError: Only support page_size=1 in mamba radix cache now.",
    "AssertionError: Page size must be 1 for MambaRadixCache v1, got",
)
#: What is compared, besides refused or not. None on either side: that side does not tell.
FIGURES = (
    "slots",
    "slots_per_request",
    "requests",
    "tokens",
    "slot_bytes",
    "cell_bytes",
    "fraction",
    "draft_tokens",
    "context_len",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One configuration to compare."""

    sections: Mapping[str, Any]  # of a params file
    card_mib: int  # as nvidia-smi shows
    pre_bytes: int  # free before the weights load, of every rank
    post_bytes: int  # free when the pools are sized, of every rank

    @property
    def key(self) -> str:
        """Equal for equal points."""
        return json.dumps((self.sections, self.card_mib, self.pre_bytes, self.post_bytes), sort_keys=True)

    @property
    def config(self) -> RunConfig:
        return RunConfig.model_validate(self.sections)

    @property
    def question(self) -> dict[str, Any]:
        """For the engine: its command line, its environment, the card's memory."""
        config = self.config
        argv = command(
            config,
            model_path=_folder(config.model) or "",
            draft_path=_folder(config.speculative.draft_model_path),
            host="127.0.0.1",
            port=30000,
        )
        return {
            "argv": argv[argv.index("--model-path") :],
            "env": dict(config.engine.env),
            "card_mib": self.card_mib,
            "pre_bytes": self.pre_bytes,
            "post_bytes": self.post_bytes,
        }


def _folder(name: str | None) -> str | None:
    return None if name is None else str(specs.load_model(name).folder)


def _card(point: Point) -> gpus.GpuSpec:
    """Of any size, with the capability of the card that the point names."""
    known = gpus.load_gpu(point.config.gpu.name)
    return dataclasses.replace(
        known, title="of the oracle", card_bytes=point.card_mib * MIB, listed={}, idle_free_bytes=None
    )


def predicted(point: Point) -> dict[str, Any]:
    """specbench's answer: figures by name, and `refused`: None, a kind of `KINDS`, or arguments; None: not sized."""
    config = point.config
    gpu = _card(point)
    try:
        resolved = settings(config, gpu=gpu)
        budget = predict(
            config,
            gpu=gpu,
            pre_bytes=Interval.exact(point.pre_bytes),
            post_bytes=Interval.exact(point.post_bytes),
        )
    except SpecbenchError as error:
        return {"refused": "unsized", "text": str(error)}
    limits, details = budget.limits, budget.details
    figures: dict[str, Any] = {"fraction": resolved.fraction, "draft_tokens": resolved.shape.verify_width or None}
    kind = None if budget.engine_error is None else kind_of(budget.engine_error)
    if budget.verdict == "refused" and not details:
        kind = _kind_of_refusal(config)
    if kind is not None:
        return figures | {"refused": kind, "text": budget.engine_error or budget.reason}
    found = {
        "slots": limits["state_slots"].value,
        "slots_per_request": limits["slots_per_request"].value,
        "requests": limits["running_requests"].value,
        "tokens": limits["kv_tokens"].value,
        "slot_bytes": details["slot_bytes"],
        "cell_bytes": details["charged_cell_bytes"],
        "context_len": limits["context_len"].value,
    }
    return figures | {name: None if value is None else value.point for name, value in found.items()} | {"refused": None}


def _kind_of_refusal(config: RunConfig) -> str:
    """Of the first refusal: arguments, or beyond what the oracle does (layers are not built, nothing is served)."""
    first = next(one for one in check(config) if not one.tolerated)
    return "beyond" if (first.engine_error or "").startswith(BUILDING) or first.key == "engine.version" else "arguments"


def predicted_pools(point: Point) -> dict[str, Any]:
    """The same without the weights, terms and words of a whole budget, by the code that `predict` solves with."""
    config = point.config
    gpu = _card(point)
    try:
        resolved = settings(config, gpu=gpu)
    except SpecbenchError as error:
        return {"refused": "unsized", "text": str(error)}
    figures: dict[str, Any] = {"fraction": resolved.fraction, "draft_tokens": resolved.shape.verify_width or None}
    refusal = next((one for one in check(config, resolved.target) if not one.tolerated), None)
    if refusal is not None:
        return figures | {"refused": _kind_of_refusal(config), "text": refusal.engine_error or refusal.reason}
    slot, cell = units(resolved)
    wanted = demand(resolved, slot, cell)
    pools = solve(resolved.rule, wanted, rest_gib(resolved, point.pre_bytes, point.post_bytes))
    if pools.refusal in KINDS:
        return figures | {"refused": pools.refusal, "text": None}
    return figures | {
        "refused": None,
        "slots": max(0, pools.slots) if wanted.slot_bytes else None,
        "slots_per_request": resolved.slots_per_request if wanted.slot_bytes else None,
        "requests": None if pools.requests is None else max(0, pools.requests),
        "tokens": pools.tokens,
        "slot_bytes": wanted.slot_bytes,
        "cell_bytes": wanted.cell_bytes,
        "context_len": wanted.context_len,
    }


def kind_of(text: str) -> str | None:
    """A refusal of the sizing by its text. None: one that comes later, when pools stand (graphs, memory runs out)."""
    return next((kind for kind, begin in KINDS.items() if text.startswith(begin)), None)


def engine_said(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's answer in the same terms."""
    arguments = answer.get("arguments", {})
    figures: dict[str, Any] = {
        "fraction": arguments.get("mem_fraction_static"),
        "draft_tokens": arguments.get("speculative_num_draft_tokens"),
    }
    error = answer.get("error")
    if error is None:
        told = {name: answer[name] for name in FIGURES if name in answer}
        for name in ("slots", "requests"):  # the oldest releases go on with fewer than none
            told[name] = None if told[name] is None else max(0, told[name])
        return figures | told | {"refused": None}
    if any(mark in error["text"] for mark in _UNREAD):
        return figures | {"refused": "beyond", "text": error["text"]}
    kind = kind_of(error["text"]) if error["where"] == "pools" else None
    return figures | {"refused": kind or "arguments", "text": error["text"], "at": error.get("at")}


def differences(ours: Mapping[str, Any], engine: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Figures that both sides tell and that differ: name -> (specbench, engine). None of what only one can tell."""
    if ours["refused"] in NOT_COMPARED or engine["refused"] in NOT_COMPARED:
        return {}
    if ours["refused"] != engine["refused"]:
        return {"refused": (_told(ours), _told(engine))}
    return {
        name: (ours.get(name), engine.get(name))
        for name in FIGURES
        if ours.get(name) is not None and engine.get(name) is not None and ours[name] != engine[name]
    }


def _told(answer: Mapping[str, Any]) -> str:
    if answer["refused"] is None:
        return f"slots {answer.get('slots')}, requests {answer.get('requests')}, tokens {answer.get('tokens')}"
    return f"{answer['refused']}: {answer.get('text')}"
