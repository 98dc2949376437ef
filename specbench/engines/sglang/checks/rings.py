"""--enable-linear-replayssm-spec (0.5.17): what it does not run with. In: a configuration and its target.

Source: arg_groups/attention_hook.py and mem_cache/kv_cache_configurator.py of 0.5.20 and 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterator

from .... import speculative
from ....configuration.config import RunConfig
from ....layers import GatedDeltaNet, KimiDelta
from ....specs import ModelSpec
from ....versions import at_least
from ..given import server_args
from .refusal import Refusal

_FLAG = "--enable-linear-replayssm-spec"
_KEY = "engine.args.enable-linear-replayssm-spec"
_SINCE = "0.5.17"


def refusals(config: RunConfig, version: str, target: ModelSpec) -> Iterator[Refusal]:
    section, args = config.speculative, server_args(config)
    if not args.get("enable_linear_replayssm_spec") or not at_least(version, _SINCE):
        return
    if section.eagle_topk not in (None, 1):
        yield Refusal(
            key="speculative.eagle_topk",
            value=section.eagle_topk,
            reason=f"{_FLAG} verifies chains only",
            allowed=f"1, or no {_FLAG}",
            engine_error=(
                f"ValueError: {_FLAG} requires a linear draft chain (--speculative-eagle-topk in {{None, 1}}); the "
                "chunked verify kernel uses a strictly-lower causal mask and is invalid for EAGLE tree verify. Got "
                f"--speculative-eagle-topk={section.eagle_topk!r}."
            ),
        )
    if args.get("disaggregation_mode") == "prefill":
        yield _with(
            f"{_FLAG} is not supported on a PD prefill server: the ring is spec-verify-only scratch and the prefill "
            "server never runs spec verify.",
            "a prefill server verifies nothing",
        )
    if args.get("enable_linear_replayssm"):
        yield _with(
            f"{_FLAG} and --enable-linear-replayssm are mutually exclusive: they share the ring storage but drive it "
            "with incompatible cursor protocols (per-decode-forward vs per-verify-commit advance).",
            "--enable-linear-replayssm keeps the same rings in another way",
        )
    if not target.state_layers:
        return
    delta = any(isinstance(layer, KimiDelta) for layer in target.state_layers)
    name = speculative.canonical(section.algorithm)
    if name in ("DSPARK", "DFLASH") and not delta:
        yield _with(
            f"{_FLAG} with DSPARK/DFLASH requires a KDA (kimi_linear) model; got a non-KDA model.",
            f"{name} folds the rings of KDA layers only",
        )
    nets = any(isinstance(layer, GatedDeltaNet) for layer in target.state_layers)
    asked = speculative.of(section).default_requests or config.memory.max_running_requests
    if nets and asked is None and at_least(version, "0.5.20"):
        yield Refusal(
            key="memory.max_running_requests",
            value=None,
            reason=f"{_FLAG} charges its rings by the requested requests, and nothing sets a number",
            allowed=f"a number, or no {_FLAG}",
            engine_error="TypeError: unsupported operand type(s) for //: 'NoneType' and 'int'",
        )


def _with(said: str, reason: str) -> Refusal:
    return Refusal(key=_KEY, value=True, reason=reason, allowed="leave it out", engine_error=f"ValueError: {said}")
