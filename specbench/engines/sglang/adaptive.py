"""Steps that change while the server runs (--speculative-adaptive). In: a configuration and widths. Out: other widths.

The solver charges the width at the start; from 0.5.13 the pools have room for the widest candidate. Source: SGLang
speculative/adaptive_spec_params.py, arg_groups/speculative_hook.py and max_speculative_num_draft_tokens per version.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ... import speculative
from ...configuration.config import RunConfig
from ...speculative.contract import Shape
from ...versions import at_least

_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN")
_STOPPED_BY = ("enable_multi_layer_eagle", "enable_two_batch_overlap", "enable_pdmux")
_CHOOSES_STEPS_SINCE = "0.5.14"
_WIDE_POOLS_SINCE = "0.5.13"
#: Steps to choose from without --speculative-adaptive-config: those of all batch sizes. Newest first.
_CANDIDATES = (("0.5.20", (0, 1, 3, 5, 7)), ("0.5.14", (0, 1, 3, 7)), ("0.5.11", (1, 3, 7)))


def candidates(config: RunConfig, version: str, args: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Numbers of steps; None: the flag is off, the engine drops it with a warning, or a file names them.

    `args`: further server flags by underscored name.
    """
    section = config.speculative
    if not args.get("speculative_adaptive") or args.get("speculative_adaptive_config"):
        return None
    stopped = config.parallel.attention_dp > 1 or any(args.get(flag) for flag in _STOPPED_BY)
    if speculative.canonical(section.algorithm) not in _ALGORITHMS or section.eagle_topk not in (None, 1) or stopped:
        return None
    return next((steps for since, steps in _CANDIDATES if at_least(version, since)), None)


def chooses_steps(version: str) -> bool:
    """Whether the engine takes its first steps from the candidates when none are given."""
    return at_least(version, _CHOOSES_STEPS_SINCE)


def adapted(shape: Shape, config: RunConfig, version: str, args: Mapping[str, Any]) -> Shape:
    """Widths at the start and of the pools."""
    steps = candidates(config, version, args)
    if steps is None:
        return shape
    if chooses_steps(version):
        first = config.speculative.num_steps
        first = steps[len(steps) // 2] if first is None else first
        shape = dataclasses.replace(shape, steps=first, topk=1, verify_width=first + 1)
    elif shape.topk != 1:
        return shape
    widest = max(steps) + 1
    pools = widest if at_least(version, _WIDE_POOLS_SINCE) else None
    return dataclasses.replace(shape, widest=pools, longest_accept=widest)
