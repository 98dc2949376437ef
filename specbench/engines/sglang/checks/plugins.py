"""Algorithms of plug-ins (`speculative.custom`): what the engine's registry refuses.

Texts of SGLang 0.5.12 to 0.5.23, speculative/spec_registry.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from .... import speculative
from ....configuration.config import RunConfig
from ....versions import at_least
from ..flags import ALGORITHM_SINCE
from .refusal import Refusal

_SINCE = "0.5.12"


def refusals(config: RunConfig, version: str) -> Iterator[Refusal]:
    section = config.speculative
    name = speculative.canonical(section.algorithm)
    if name == "none" or name in ALGORITHM_SINCE:
        yield Refusal(
            key="speculative.algorithm",
            value=section.algorithm,
            reason="custom describes an algorithm of a plug-in, and this name is the engine's own",
            allowed="the name that the plug-in registers, or no custom",
            engine_error=(
                f"ValueError: '{name.upper()}' is a reserved speculative algorithm name; cannot be re-registered."
            ),
        )
        return
    if not at_least(version, _SINCE):
        yield Refusal(
            key="speculative.algorithm",
            value=section.algorithm,
            reason=f"plug-ins register algorithms since {_SINCE}",
            allowed=", ".join(["none", *(one for one, first in ALGORITHM_SINCE.items() if at_least(version, first))]),
        )
        return
    described = section.custom
    for complaint in speculative.of(section).check(section):
        yield Refusal(
            key=f"speculative.{complaint.key}",
            value=complaint.value,
            reason=complaint.reason,
            allowed=complaint.allowed,
        )
    if described is not None and not described.overlap and not config.memory.disable_overlap_schedule:
        yield Refusal(
            key="memory.disable_overlap_schedule",
            value=False,
            reason=f"{name} is not registered for overlap scheduling (speculative.custom.overlap)",
            allowed="true, or custom.overlap: true where the plug-in says supports_overlap",
            engine_error=f"ValueError: Speculative algorithm {name} does not support overlap scheduling.",
        )
    if config.parallel.pp_size > 1:
        said = (
            "Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative decoding"
            if at_least(version, "0.5.21")
            else "Pipeline parallelism is not compatible with overlap schedule, speculative decoding"
        )
        yield Refusal(
            key="parallel.pp_size",
            value=config.parallel.pp_size,
            reason="algorithms of plug-ins do not run with pipeline stages",
            allowed="1",
            engine_error=f"AssertionError: {said}",
        )
