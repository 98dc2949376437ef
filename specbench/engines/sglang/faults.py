"""What ends a server although its arguments pass and its memory suffices: classes of models that lack something.

In: a resolved configuration. Out: a clause, with the engine's own words. The non-obvious thing: nothing of this is in
the code that checks arguments or sizes pools, so SGLang prints the pools first, or has not even built the model.
Sources: models/ of the releases, model_executor/model_runner.py (attention_backend_setup.py from 0.5.16),
layers/attention/triton_backend.py; those that were seen say so.
"""

from __future__ import annotations

from collections.abc import Callable

from ...versions import at_least
from . import families
from .given import server_args
from .resolve import Settings

#: What a draft of each algorithm asks of its target. STANDALONE and NGRAM ask nothing.
_FEEDS: dict[str, families.Feed] = {
    **dict.fromkeys(("EAGLE", "NEXTN", "FROZEN_KV_MTP"), "embedding"),
    "EAGLE3": "eagle3",
    **dict.fromkeys(("DFLASH", "DSPARK", "DDTREE"), "block"),
}

#: Architectures whose loader looks for the head in the checkpoint and asserts that there is one.
_LOADS_HEAD = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "GlmMoeDsaForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
    },
)


def of(settings: Settings) -> str | None:
    """After "SGLang 0.5.16 …"; None: nothing is known against it."""
    found = (fault(settings) for fault in _FAULTS)
    return next((clause for clause in found if clause is not None), None)


def _cannot_be_built(settings: Settings) -> str | None:
    architecture = settings.target.architecture
    broken = families.broken(architecture, settings.version)
    if broken is None:
        return None
    error, mended = broken
    return f"cannot build {architecture} (seen with 0.5.16: {error}); {mended} can again."


def _is_one_stage(settings: Settings) -> str | None:
    architecture = settings.target.architecture
    if settings.config.parallel.pp_size == 1 or not families.is_one_stage(architecture):
        return None
    return f"cannot cut {architecture} into pipeline stages: its class asserts that it is the first and the last."


def _dies_of_triton(settings: Settings) -> str | None:
    end = families.refuses_triton_attention(settings.target.architecture, settings.version)
    if end != "dies" or server_args(settings.config).get("attention_backend") != "triton":
        return None
    return (
        "ends once its pools stand (seen with 0.5.12 and 0.5.16: layer_id=0 not in full attention layers): triton's "
        "attention backend reads the KV of the first layer, which has none. Another --attention-backend avoids it."
    )


def _feeds_no_draft(settings: Settings) -> str | None:
    architecture, version = settings.target.architecture, settings.version
    feed = _FEEDS.get(settings.algorithm)
    if feed is None or families.feeds_draft(architecture, version, feed):
        return None
    return (
        f"ends as {settings.algorithm} asks for what {architecture} does not hand to a draft: "
        f"{_error(architecture, version, feed)}"
    )


def _has_no_head(settings: Settings) -> str | None:
    """A target that is to be its own draft (always when no other is named) and was published without a head."""
    target, path = settings.target, settings.config.speculative.draft_model_path
    if settings.algorithm not in ("EAGLE", "NEXTN") or path not in (None, settings.config.model):
        return None
    if target.architecture not in _LOADS_HEAD or target.builtin_draft() is not None:
        return None
    return (
        f"ends as it loads the draft, for {target.name} has no head of its own: AssertionError: Only 1 nextn layer is "
        "supported. speculative.draft_model_path names another draft."
    )


def _takes_head_for_rotary(settings: Settings) -> str | None:
    """The transformers of 0.5.11 and 0.5.12 read GLM's `head_dim` as the rotary width: GLM-5.3 then does not load."""
    target, version = settings.target, settings.version
    affected = at_least(version, "0.5.11") and not at_least(version, "0.5.13")
    if not affected or target.architecture != "GlmMoeDsaForCausalLM":
        return None
    width = target.config.data.get("head_dim")
    if width in (None, target.config.data.get("qk_rope_head_dim")):
        return None
    return (
        f"takes the head_dim of {target.name}, {width}, for the width of its rotary keys, which its weights then do "
        "not fit; 0.5.13 reads it right."
    )


def _error(architecture: str, version: str, feed: families.Feed) -> str:
    if feed == "embedding":
        return f"AttributeError: '{architecture}' object has no attribute 'get_embed_and_head'"
    if feed == "eagle3":
        if at_least(version, "0.5.23"):
            return (
                f"ValueError: Model {architecture} does not implement set_eagle3_layers_to_capture, which EAGLE3 aux "
                "hidden-state capture requires."
            )
        return f"AttributeError: '{architecture}' object has no attribute 'set_eagle3_layers_to_capture'"
    if at_least(version, "0.5.16"):
        return (
            f"ValueError: Model {architecture} implements neither set_dspark_layers_to_capture nor "
            "set_dflash_layers_to_capture, one of which is required for DFLASH/DSPARK."
        )
    return (
        f"ValueError: Model {architecture} does not implement set_dflash_layers_to_capture, which is required for "
        "DFLASH."
    )


_FAULTS: tuple[Callable[[Settings], str | None], ...] = (
    _cannot_be_built,
    _is_one_stage,
    _dies_of_triton,
    _feeds_no_draft,
    _has_no_head,
    _takes_head_for_rotary,
)
