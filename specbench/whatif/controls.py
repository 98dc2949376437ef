"""What can be moved, from which value, and how far. In: a `WhatIf`. Out: controls, and the changes of their values.

Each control starts at this run's own value: what was given, else what the engine made of it. While it stands there
nothing is set: to be left to the engine is not the same as to be given the engine's value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .. import speculative
from ..configuration.config import RunConfig
from ..engines.sglang.resolve import Settings, settings
from ..errors import SpecbenchError
from ..planning.changes import TP_SIZES, ratio_of, width_change
from .outlook import Outlook, WhatIf

Name = Literal[
    "requests", "slots", "ratio", "fraction", "draft_tokens", "state_dtype", "prefix_cache", "tp_size", "context"
]
Value = int | float | str | None
#: Of slots: the engine takes them from the ratio.
AUTO = "auto"
#: Of the state's type: what the model's config says.
AS_MODEL = "as the model"
#: A strategy of the prefix cache here, a switch of its own there.
OFF = "off"
_MOST_REQUESTS, _MOST_DRAFT_TOKENS, _MOST_SLOTS = 4096, 64, 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One thing that can be moved."""

    name: Name
    label: str
    start: Value  # this run's own; None: not known, then the control is idle
    given: bool  # whether the start was given; else the engine chose it
    low: float | None = None
    high: float | None = None
    step: float | None = None
    options: tuple[tuple[str, Value], ...] = ()  # (words, value); empty: a number
    note: str = ""  # what it costs, or why it is idle

    @property
    def idle(self) -> bool:
        return self.start is None and not self.options

    @property
    def tip(self) -> str:
        """What stands beside it when one points at it."""
        whose = "as given" if self.given else "not given: the engine's own"
        return f"{self.label}: {self.start} ({whose}){f'. {self.note}' if self.note else ''}"


def controls(what: WhatIf) -> tuple[Control, ...]:
    """All of them, in the order in which they are shown."""
    config, plain = what.config, what.with_({})
    memory = config.memory
    resolved = _settings(what.resolved)
    asked = what.observed.asked if memory.max_running_requests is None else memory.max_running_requests
    requests = asked or what.observed.resolved.get("running_requests") or plain.limit("running_requests") or 1
    width = _width(plain)
    return (
        Control(
            name="requests",
            label="requests at once",
            start=requests,
            given=memory.max_running_requests is not None,
            low=1,
            high=min(_MOST_REQUESTS, max(32, 2 * requests)),
            step=1,
            note="max_running_requests",
        ),
        Control(
            name="slots",
            label="state slots",
            start=AUTO if memory.max_mamba_cache_size is None else memory.max_mamba_cache_size,
            given=memory.max_mamba_cache_size is not None,
            low=1,
            high=_MOST_SLOTS,
            step=1,
            note="max_mamba_cache_size; auto: from the ratio",
        ),
        Control(
            name="ratio",
            label="state : KV ratio",
            start=ratio_of(config),
            given=memory.mamba_full_memory_ratio is not None,
            low=0.01,
            high=100.0,
            step=0.1,
            note="mamba_full_memory_ratio; without effect where slots are given",
        ),
        Control(
            name="fraction",
            label="static fraction",
            start=_fraction(what, resolved),
            given=memory.mem_fraction_static is not None,
            low=0.05,
            high=0.99,
            step=0.01,
            note="mem_fraction_static, of the free memory before loading",
        ),
        Control(
            name="draft_tokens",
            label="draft tokens",
            start=width,
            given=config.speculative.num_draft_tokens is not None,
            low=2,
            high=max(_MOST_DRAFT_TOKENS, width or 0),
            step=1,
            note="speculative_num_draft_tokens" if width else "no speculation",
        ),
        Control(
            name="state_dtype",
            label="state dtype",
            start=memory.mamba_ssm_dtype or AS_MODEL,
            given=memory.mamba_ssm_dtype is not None,
            options=(
                (f"as the model ({resolved.ssm_dtype})" if resolved is not None else "as the model", AS_MODEL),
                *((word, word) for word in ("float32", "bfloat16", "float16")),
            ),
            note="mamba_ssm_dtype; a rounded state changes results",
        ),
        Control(
            name="prefix_cache",
            label="prefix cache",
            start=OFF if memory.disable_radix_cache else memory.mamba_radix_cache_strategy,
            given=memory.disable_radix_cache or memory.mamba_radix_cache_strategy != AUTO,
            options=tuple((word, word) for word in (*_strategies(config, resolved), OFF)),
            note="mamba_radix_cache_strategy; off: disable_radix_cache",
        ),
        Control(
            name="tp_size",
            label="GPUs (TP)",
            start=config.parallel.tp_size,
            given=config.parallel.tp_size > 1,
            options=tuple((str(size), size) for size in sorted({*TP_SIZES, config.parallel.tp_size})),
            note="tensor parallel ranks; others than now are predicted from the configuration alone",
        ),
        Control(
            name="context",
            label="context",
            start=plain.limit("context_len") if memory.context_length is None else memory.context_length,
            given=memory.context_length is not None,
            low=1,
            high=2**24,
            step=1024,
            note="context_length, tokens of one request",
        ),
    )


def changes(what: WhatIf, shown: tuple[Control, ...], values: Mapping[str, Value]) -> dict[str, Any]:
    """Dotted keys of the controls that were moved, as `WhatIf.with_` takes them. Missing values: not moved."""
    found: dict[str, Any] = {}
    for control in shown:
        value = values.get(control.name, control.start)
        if value != control.start and not control.idle:
            found |= _set(what.config, control, value)
    return found


def _set(config: RunConfig, control: Control, value: Value) -> dict[str, Any]:
    match control.name:
        case "requests":
            return {"memory.max_running_requests": value}
        case "slots":
            return {"memory.max_mamba_cache_size": None if value == AUTO else value}
        case "ratio":
            return {"memory.mamba_full_memory_ratio": value}
        case "fraction":
            return {"memory.mem_fraction_static": value}
        case "draft_tokens":
            assert isinstance(value, int) and isinstance(control.start, int)
            return width_change(config, control.start, value)
        case "state_dtype":
            return {"memory.mamba_ssm_dtype": None if value == AS_MODEL else value}
        case "prefix_cache":
            return _prefix_cache(config, value)
        case "tp_size":
            parallel = config.parallel.model_copy(update={"tp_size": value})
            return {"parallel.tp_size": value, "gpu.count": parallel.gpus}
        case "context":
            return {"memory.context_length": value}


def _prefix_cache(config: RunConfig, value: Value) -> dict[str, Any]:
    if value != OFF:
        return {"memory.mamba_radix_cache_strategy": value} | (
            {"memory.disable_radix_cache": False} if config.memory.disable_radix_cache else {}
        )
    # Up to 0.5.13 a strategy is refused beside a prefix cache that is turned off.
    strategy = {} if config.memory.mamba_radix_cache_strategy == AUTO else {"memory.mamba_radix_cache_strategy": AUTO}
    return {"memory.disable_radix_cache": True, **strategy}


def _settings(config: RunConfig) -> Settings | None:
    try:
        return settings(config)
    except SpecbenchError:
        return None


def _strategies(config: RunConfig, resolved: Settings | None) -> tuple[str, ...]:
    now = config.memory.mamba_radix_cache_strategy
    known = (AUTO,) if resolved is None else resolved.rule.strategies
    return known if now in known else (*known, now)


def _fraction(what: WhatIf, resolved: Settings | None) -> float | None:
    given = what.resolved.memory.mem_fraction_static
    if given is not None:
        return given
    return None if resolved is None else round(resolved.fraction, 6)


def _width(plain: Outlook) -> int | None:
    """Tokens verified per step; None: no speculation, or not predicted."""
    if plain.budget is None or plain.config is None:
        return None
    if speculative.canonical(plain.config.speculative.algorithm) == "none":
        return None
    width = plain.budget.details.get("draft_tokens")
    return width.point if width is not None and width.point else plain.config.speculative.num_draft_tokens
