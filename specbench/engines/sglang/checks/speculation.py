"""Algorithms: whether the release has them, what they need, what they do not run with."""

from __future__ import annotations

from collections.abc import Iterator

from .... import speculative
from ....configuration.config import RunConfig
from ....versions import at_least
from ..flags import ALGORITHM_SINCE
from ..resolve import server_args
from ..sizing.contract import Rule
from .refusal import Refusal


def refusals(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    section = config.speculative
    name = speculative.canonical(section.algorithm)
    since = ALGORITHM_SINCE.get(name)
    if name != "none" and (since is None or not at_least(version, since)):
        yield Refusal(
            key="speculative.algorithm",
            value=section.algorithm,
            reason=f"{name} exists since {since}" if since else speculative.unreleased(section.algorithm),
            allowed=_allowed(version, name),
            forced=(
                None
                if since
                else "engine.allow_refused: true starts the server, but nothing runs unless a fork or a plug-in brings "
                "the algorithm, and nothing is predicted"
            ),
        )
        return
    if name in speculative.ALGORITHMS:
        for complaint in speculative.ALGORITHMS[name].check(section):
            yield Refusal(
                key=f"speculative.{complaint.key}",
                value=complaint.value,
                reason=complaint.reason,
                allowed=complaint.allowed,
                tolerated=True,
            )
    if name == "DFLASH":
        yield from _dflash(config, version)
    if name in ("EAGLE", "EAGLE3", "NEXTN"):
        yield from _eagle(config)
    if name in ("NGRAM", "STANDALONE") and config.parallel.enable_dp_attention:
        yield Refusal(
            key="parallel.enable_dp_attention",
            value=True,
            reason=f"{name} does not run with data-parallel attention",
            allowed="false",
            engine_error=(f"ValueError: Currently {name.lower()} speculative decoding does not support dp attention."),
        )


def _allowed(version: str, asked: str) -> str:
    """Algorithms of the version: those that can be sized, and apart from them those that can only be run."""
    released = [known for known, first in ALGORITHM_SINCE.items() if at_least(version, first)]
    sized = ["none", *(known for known in released if known in speculative.ALGORITHMS)]
    others = [known for known in released if known not in speculative.ALGORITHMS]
    nearest = speculative.nearest(asked, released)
    unsized = f"; in this version too, but not predicted: {', '.join(others)}" if others else ""
    return ", ".join(sized) + unsized + (f"; the nearest is {nearest}" if nearest else "")


def _dflash(config: RunConfig, version: str) -> Iterator[Refusal]:
    section, parallel = config.speculative, config.parallel
    if parallel.enable_dp_attention and not at_least(version, "0.5.23"):
        yield Refusal(
            key="parallel.enable_dp_attention",
            value=True,
            reason="DFLASH does not run with data-parallel attention",
            allowed="false",
            engine_error="ValueError: Currently DFLASH speculative decoding does not support dp attention.",
        )
    if parallel.pp_size != 1:
        yield Refusal(
            key="parallel.pp_size",
            value=parallel.pp_size,
            reason="DFLASH does not run with pipeline stages",
            allowed="1",
            engine_error="ValueError: Currently DFLASH speculative decoding only supports pp_size == 1.",
        )
    if section.draft_model_path is None:
        yield Refusal(
            key="speculative.draft_model_path",
            value=None,
            reason="DFLASH needs a draft model",
            allowed="the draft's name or folder",
            engine_error="ValueError: DFLASH speculative decoding requires setting --speculative-draft-model-path.",
        )
    block = server_args(config).get("speculative_dflash_block_size")
    width = section.num_draft_tokens
    if isinstance(block, int) and width is not None and width != block:
        yield Refusal(
            key="speculative.num_draft_tokens",
            value=width,
            reason=f"engine.args sets a block size of {block}; a block is what is verified",
            allowed=str(block),
            engine_error=(
                "ValueError: Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but they "
                f"differ. For DFLASH they must match. speculative_num_draft_tokens={width}, "
                f"speculative_dflash_block_size={block}."
            ),
        )


def _eagle(config: RunConfig) -> Iterator[Refusal]:
    """SGLang takes all three widths or chooses all three itself."""
    section = config.speculative
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
