"""One question, answered by SGLang."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import types
from collections.abc import Iterator
from typing import Any

import groups
import runner
from device import CARD
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed.utils import get_pp_indices
from sglang.srt.server_args import prepare_server_args
from sglang.version import __version__ as VERSION

_MIB = 1 << 20


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """`question`: argv, env, card_mib, pre_bytes, post_bytes. Bytes are per rank, and alike on all ranks."""
    CARD.total_bytes = question["card_mib"] * _MIB
    CARD.free_bytes = question["pre_bytes"]
    with _environment(question.get("env", {})):
        return _answer(question)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    spoken = io.StringIO()
    try:
        with contextlib.redirect_stderr(spoken):
            server_args = prepare_server_args(question["argv"])
        view = runner.resolved(server_args, 0)
        for check in ("check_server_args",):
            getattr(server_args, check, lambda: None)()
    except SystemExit:
        return _refused("arguments", spoken.getvalue().strip().splitlines()[-1:])
    except Exception as error:
        return _refused("arguments", error)
    found: dict[str, Any] = {"arguments": _arguments(view)}
    pp = view.pp_size
    groups.STAGES.least, groups.STAGES.brought = None, []
    answers: list[dict[str, Any]] = []
    if pp > 1:
        for stage in range(pp):
            answers.append(_stage(question, stage))
        refused = next((one for one in answers if "error" in one), None)
        if refused is not None:
            return found | refused
        groups.STAGES.least = min(groups.STAGES.brought)
        answers = [_stage(question, stage) for stage in range(pp)]
        # Up to 0.5.9 each stage settles its own number, by the tokens that fit on it: none runs more than the least
        told = [one["requests"] for one in answers if one.get("requests") is not None]
        return found | answers[0] | ({"requests": min(told)} if told else {})
    return found | _stage(question, 0, (server_args, view))


def _stage(question: dict[str, Any], stage: int, made: tuple[Any, Any] | None = None) -> dict[str, Any]:
    """A rank of one stage, of a fresh server: sizing changes the arguments in place."""
    if made is None:
        server_args = prepare_server_args(question["argv"])
        view = runner.resolved(server_args, stage)
    else:
        server_args, view = made
    try:
        config = ModelConfig.from_server_args(server_args)
    except Exception as error:
        return _refused("model", error)
    layers = get_pp_indices(config.num_hidden_layers, stage, view.pp_size) if view.pp_size > 1 else None
    return runner.size(question, server_args, view, config, stage, layers)


_refused = runner.refused


def _arguments(view: Any) -> dict[str, Any]:
    names = (
        "mem_fraction_static", "chunked_prefill_size", "max_running_requests", "disable_overlap_schedule", "page_size",
        "speculative_algorithm", "speculative_num_draft_tokens", "speculative_num_steps", "speculative_eagle_topk",
        "mamba_radix_cache_strategy", "mamba_scheduler_strategy", "disable_radix_cache", "attention_backend",
        "kv_cache_dtype", "cuda_graph_max_bs", "mamba_ssm_dtype", "mamba_full_memory_ratio",
    )  # fmt: skip
    return {name: _plain(getattr(view, name, None)) for name in names}


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else str(value)


@contextlib.contextmanager
def _environment(given: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(given)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
