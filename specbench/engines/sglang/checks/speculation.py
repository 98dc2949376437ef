"""Algorithms: whether the release has them, what they need, what they do not run with."""

from __future__ import annotations

from collections.abc import Iterator

from .... import speculative
from ....configuration.config import RunConfig
from ....versions import at_least
from .. import adaptive
from ..flags import ALGORITHM_SINCE
from ..given import server_args, switched_on
from ..sizing.contract import Rule
from . import blocks, plugins, uno
from .refusal import Refusal


def refusals(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    section = config.speculative
    name = speculative.canonical(section.algorithm)
    if section.custom is not None:
        yield from plugins.refusals(config, version)
        return
    since = ALGORITHM_SINCE.get(name)
    forked = name in speculative.ALGORITHMS and since is None and config.engine.sizing is not None
    if name != "none" and not forked and (since is None or not at_least(version, since)):
        yield Refusal(
            key="speculative.algorithm",
            value=section.algorithm,
            reason=f"{name} exists since {since}" if since else speculative.unreleased(section.algorithm),
            allowed=_allowed(version, name),
            forced=(
                None
                if since
                else "engine.allow_refused: true starts the server, but nothing runs unless a fork or a plug-in brings "
                "the algorithm"
            ),
        )
        return
    yield from contradictions(config)
    if name in ("DFLASH", "DSPARK", "DDTREE"):
        yield from blocks.refusals(config, version, name)
    if name in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE"):
        yield from _eagle(config, version, rule)
    if name == "FROZEN_KV_MTP":
        yield from _frozen_kv_mtp(config)
    if name == "UNO":
        yield from uno.refusals(config)
    if name in ("NGRAM", "STANDALONE") and config.parallel.attention_dp > 1:
        yield Refusal(
            key="parallel.enable_dp_attention",
            value=True,
            reason=f"{name} does not run with data-parallel attention",
            allowed="false",
            engine_error=f"ValueError: Currently {name.lower()} speculative decoding does not support dp attention.",
        )
    if name not in ("none", "DFLASH", "DSPARK", "DDTREE", "UNO") and config.parallel.pp_size > 1:
        yield from _stages(config, version, name)


def contradictions(config: RunConfig) -> Iterator[Refusal]:
    """Keys that do not fit the algorithm: the engine would take others."""
    for complaint in speculative.of(config.speculative).check(config.speculative):
        yield Refusal(
            key=f"speculative.{complaint.key}",
            value=complaint.value,
            reason=complaint.reason,
            allowed=complaint.allowed,
            tolerated=True,
        )


def _stages(config: RunConfig, version: str, name: str) -> Iterator[Refusal]:
    """Pipeline stages: nothing drafts with them, but from 0.5.21 the EAGLE family, where a variable allows it."""
    eagle = name in ("EAGLE", "NEXTN")
    allowed = switched_on(config.engine.env, "SGLANG_ENABLE_PP_SPEC")
    if at_least(version, "0.5.21") and eagle and allowed:
        return
    if not at_least(version, "0.5.21"):
        more = "" if at_least(version, "0.5.11") else ", mixed chunked prefill."
        said = f"Pipeline parallelism is not compatible with overlap schedule, speculative decoding{more}"
    elif eagle:
        said = "PP + speculative decoding (MTP) is only supported on prefill nodes (disaggregation-mode=prefill)"
    else:
        said = "Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative decoding"
    yield Refusal(
        key="parallel.pp_size",
        value=config.parallel.pp_size,
        reason=f"{name} does not run with pipeline stages",
        allowed="1",
        engine_error=f"AssertionError: {said}",
    )


def _frozen_kv_mtp(config: RunConfig) -> Iterator[Refusal]:
    """The engine fills in nothing, and its solver and worker read all three."""
    section = config.speculative
    for key in ("num_steps", "eagle_topk", "num_draft_tokens"):
        if getattr(section, key) is None:
            yield Refusal(
                key=f"speculative.{key}",
                value=None,
                reason="the engine chooses no widths for FROZEN_KV_MTP",
                allowed="num_steps, eagle_topk and num_draft_tokens, e.g. 3, 1, 4",
            )


def _allowed(version: str, asked: str) -> str:
    """Algorithms of the version."""
    released = [known for known, first in ALGORITHM_SINCE.items() if at_least(version, first)]
    nearest = speculative.nearest(asked, released)
    return ", ".join(["none", *released]) + (f"; the nearest is {nearest}" if nearest else "")


def _eagle(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    """SGLang takes all three widths or chooses all three itself."""
    section = config.speculative
    wanted = switched_on(config.engine.env, "SGLANG_ENABLE_SPEC_V2")
    if wanted and (section.eagle_topk or 1) > 1 and "eagle" not in rule.overlap_with:
        yield Refusal(
            key="speculative.eagle_topk",
            value=section.eagle_topk,
            reason="spec v2, which engine.env asks for, drafts chains only in this version",
            allowed="1, or engine.env without SGLANG_ENABLE_SPEC_V2",
            engine_error="ValueError: Spec v2 currently only supports topk = 1 for speculative decoding.",
        )
    steps = adaptive.candidates(config, version, server_args(config))
    if steps is not None:
        yield from _adaptive(config, version, steps)
        if adaptive.chooses_steps(version):
            return
    given = {
        "num_steps": section.num_steps,
        "eagle_topk": section.eagle_topk,
        "num_draft_tokens": section.num_draft_tokens,
    }
    missing = [key for key, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        yield Refusal(
            key=f"speculative.{missing[0]}",
            value=None,
            reason="steps, top-k and draft tokens are given together or not at all",
            allowed="a value, or leave all three out (3, 1, 4)",
            engine_error="AssertionError" if section.num_steps is None else None,
        )


def _adaptive(config: RunConfig, version: str, steps: tuple[int, ...]) -> Iterator[Refusal]:
    """--speculative-adaptive: the first number of steps is a candidate."""
    section = config.speculative
    listed = ", ".join(map(str, steps))
    if section.num_steps is not None and section.num_steps not in steps and at_least(version, "0.5.13"):
        said = f"--speculative-num-steps={section.num_steps} is not in the adaptive"
        yield Refusal(
            key="speculative.num_steps",
            value=section.num_steps,
            reason="--speculative-adaptive starts with a number of steps that it also switches to",
            allowed=listed,
            engine_error=f"ValueError: {said} config candidate_steps {list(steps)}. Pass one of those values.",
        )
