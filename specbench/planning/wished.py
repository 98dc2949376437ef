"""What the wishes themselves set, before anything is searched: number of requests, context, algorithm, types, ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from .. import speculative
from ..configuration.config import RunConfig
from ..configuration.explain import listed, problem_text
from ..engines.sglang.given import allows_longer_context
from ..engines.sglang.resolve import settings
from ..errors import ConfigError, SpecbenchError
from ..specs import load_model
from .changes import Change, all_three_or_none
from .screen import asked_of_server
from .wishes import Wishes


def with_wishes(config: RunConfig, wishes: Wishes, draft: str | None = None) -> RunConfig:
    """The configuration that the search starts from, for any number of ranks and requests.

    ConfigError in two lines for wishes that no setting reaches: a context beyond the model's own, draft tokens without
    speculation.
    """
    _refuse_impossible(config, wishes)
    changes: dict[str, Any] = {}
    section = config.speculative
    wished = wishes.algorithm
    if wished is not None and wished != speculative.canonical(section.algorithm):
        # Widths and draft of another algorithm mean nothing to this one.
        changes |= {"speculative": {"algorithm": wished} | ({} if draft is None else {"draft_model_path": draft})}
    elif draft is not None:
        changes["speculative.draft_model_path"] = draft
    if wishes.state_dtype is not None and _state_dtype(config) != wishes.state_dtype:
        changes["memory.mamba_ssm_dtype"] = wishes.state_dtype
    if wishes.kv_dtype is not None and not _same_kv(config, wishes.kv_dtype):
        changes["memory.kv_cache_dtype"] = wishes.kv_dtype
    if wishes.prefix_cache and config.memory.disable_radix_cache:
        changes["memory.disable_radix_cache"] = False
    found = _replaced(config, changes)
    if wishes.draft_tokens is not None and (_width(found) or wishes.draft_tokens) < wishes.draft_tokens:
        found = _replaced(found, _of_width(found, wishes.draft_tokens))
    return found


def _width(config: RunConfig) -> int | None:
    """Tokens verified per step, as given or else as the engine resolves them; None: they do not tell."""
    given = config.speculative.num_draft_tokens
    try:
        return settings(config).shape.verify_width if given is None else given
    except SpecbenchError:  # the search says why nothing is sized
        return None


def _of_width(config: RunConfig, width: int) -> dict[str, Any]:
    """Drafts of so many tokens: a chain of the EAGLE family has a step less, and the engine wants all three."""
    section = config.speculative
    changes: dict[str, Any] = {"speculative.num_draft_tokens": width}
    if section.eagle_topk in (None, 1) and (all_three_or_none(section.algorithm) or section.num_steps is not None):
        changes |= {"speculative.num_steps": width - 1}
    if all_three_or_none(section.algorithm) and section.eagle_topk is None:
        changes |= {"speculative.eagle_topk": 1}
    return changes


def _replaced(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    try:
        return config.replace(changes)
    except ValidationError as error:
        raise ConfigError(problem_text(error.errors(include_url=False)[0], RunConfig, "want")) from None


def _refuse_impossible(config: RunConfig, wishes: Wishes) -> None:
    own = load_model(config.model).context_len
    if wishes.context is not None and wishes.context > own and not allows_longer_context(config):
        raise ConfigError(
            f"want context={wishes.context:,}: {config.model} has a context of {own:,} tokens.\n"
            f"Wish for at most {own:,}, or set engine.env.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1."
        )
    algorithm = wishes.algorithm or speculative.canonical(config.speculative.algorithm)
    if wishes.draft_tokens is not None and algorithm == "none":
        raise ConfigError(
            f"want draft_tokens={wishes.draft_tokens}: nothing is drafted without a speculative algorithm.\n"
            f"Wish for one as well, e.g. algorithm=NEXTN (sized: {listed(speculative.ALGORITHMS)})."
        )


def _state_dtype(config: RunConfig) -> str:
    return config.memory.mamba_ssm_dtype or load_model(config.model).ssm_dtype or "float32"


def _same_kv(config: RunConfig, wished: str) -> bool:
    now = config.memory.kv_cache_dtype
    plain = {"bf16": "bfloat16"}
    own = load_model(config.model).dtype if now == "auto" else now
    return wished == now or plain.get(wished, wished) == plain.get(own, own)


def on_ranks(config: RunConfig, tp_size: int) -> RunConfig:
    """On so many tensor-parallel ranks, with the GPUs that these take."""
    gpus = config.parallel.model_copy(update={"tp_size": tp_size}).gpus
    if (config.parallel.tp_size, config.gpu.count) == (tp_size, gpus):
        return config
    return config.replace({"parallel.tp_size": tp_size, "gpu.count": gpus})


def asking(config: RunConfig, wishes: Wishes, each: int, tokens: int) -> tuple[Change, ...]:
    """What must be set for the wish itself. `each`: requests of a worker; `tokens`: of its KV pool."""
    memory = config.memory
    found = []
    asked = asked_of_server(config, each)
    if memory.max_running_requests != asked:
        note = f"asks for {asked:,}" + (
            "" if memory.max_running_requests is None else f" instead of {memory.max_running_requests:,}"
        )
        found.append(Change("requests", {"memory.max_running_requests": asked}, note, asked))
    now = memory.context_length
    if wishes.context is not None and now is not None and now < wishes.context:
        note = f"requests of up to {wishes.context:,} tokens instead of {now:,}"
        found.append(Change("context", {"memory.context_length": wishes.context}, note, wishes.context))
    bound = memory.max_total_tokens
    if bound is not None and bound < tokens:
        note = f"no bound of {bound:,} KV tokens"
        found.append(Change("context", {"memory.max_total_tokens": None}, note, "none"))
    return tuple(found)


def one_request(config: RunConfig) -> int:
    """Tokens of one whole request, where no context is wished: of the stated context, or the longest of the workload.
    0: there is neither. The model's own context is no wish."""
    workload = config.workload
    longest = 0 if workload.load_only else max(workload.input_tokens) + workload.output_tokens
    return max(config.memory.context_length or 0, longest)
