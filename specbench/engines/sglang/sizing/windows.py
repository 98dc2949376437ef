"""Layers that look back over a window: the pool of their own that SGLang gives them. In: settings. Out: `Windows`.

That pool is a fixed share of the tokens of the other one (--swa-full-tokens-ratio). From 0.5.14 on, without a prefix
cache and with a number of requests, it is as large as those requests can fill, and the rest goes to the other pool.
Source: HybridSWAPoolConfigurator, SWAChunkCapPoolConfigurator and compute_swa_request_cap (0.5.21) of
model_executor/pool_configurator.py; model_runner_kv_cache_mixin.py of 0.5.9, 0.5.10, which size first and part after.
"""

from __future__ import annotations

from ....errors import ConfigError
from ....versions import at_least
from ..given import server_args
from ..resolve import Settings
from .cell import Cell
from .contract import Windows
from .decode_step import allocated, allocated_without_overlap
from .steps import share

_FIRST = "0.5.9"
_DEFAULT_RATIO = 0.8
_EVICTION = "SGLANG_SWA_EVICTION_INTERVAL"
_DEFAULT_EVICTION = 128


def apart(settings: Settings) -> bool:
    """Whether layers with a window have a pool of their own; otherwise they keep all tokens, as the others do."""
    return not server_args(settings.config).get("disable_hybrid_swa_memory", False)


def ratio(settings: Settings) -> float:
    """Tokens of that pool to those of the other. ConfigError out of range."""
    given = server_args(settings.config).get("swa_full_tokens_ratio", _DEFAULT_RATIO)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1:
        raise ConfigError(
            f"engine.args.swa-full-tokens-ratio: got {given!r:.40}; expected a number above 0, at most 1.\n"
            "Correct it or leave it out."
        )
    return float(given)


def windows(settings: Settings, cell: Cell) -> Windows | None:
    """None: no layer has a window. ConfigError for versions whose way was not read."""
    if not cell.window_bytes:
        return None
    version = settings.rule.version
    if not at_least(version, _FIRST):
        raise ConfigError(
            f"engine.version: how {settings.version} sizes sliding-window layers was not read.\n"
            f"Predict {_FIRST} or later, or set engine.args.disable-hybrid-swa-memory."
        )
    return Windows(
        bytes=cell.window_bytes,
        tokens=cell.window_tokens,
        ratio=ratio(settings),
        cap=_cap(settings, cell),
        whole_cell_first=not at_least(version, "0.5.11"),
        checked=at_least(version, "0.5.16"),
    )


def _cap(settings: Settings, cell: Cell) -> int | None:
    """Tokens that the asked requests can hold in that pool at worst, whole pages; None: by the ratio.

    Of each request the window, what was written since the last eviction, a page, and what a step allocates; beside
    them the prefill chunks in flight, or on the decode server of a pair the windows of requests that are on their way.
    """
    version, requests = settings.rule.version, settings.requests
    if requests is None or settings.radix or not at_least(version, "0.5.14"):
        return None
    chunk, decodes = _chunk(settings), server_args(settings.config).get("disaggregation_mode") == "decode"
    if chunk is None or (chunk <= 0 and not decodes and at_least(version, "0.5.22")):
        return None
    page, width = settings.page_size, settings.shape.verify_width
    trailing = cell.window_tokens + _eviction(settings) * max(1, width) + page
    step = page
    if width:
        step = 2 * allocated(settings) if settings.overlap else allocated_without_overlap(settings)
    total = (trailing + step) * (requests // settings.attention_dp)
    if decodes:
        total += (cell.window_tokens + page) * _on_their_way(settings)
    else:
        total += (2 if settings.overlap else 1) * chunk + page
    return -(-total // page) * page


def _chunk(settings: Settings) -> int | None:
    """Of a worker: ranks of data-parallel attention share a chunk. None: a host, where none is given."""
    if settings.defaults is not None:
        return settings.defaults.chunk_of_worker
    given = settings.config.memory.chunked_prefill_size
    return given if given is None or given <= 0 else given // settings.attention_dp


def _on_their_way(settings: Settings) -> int:
    """Requests that a decode server receives beside those that run: two for each of at most 32, unless it is told."""
    given = server_args(settings.config).get("disaggregation_decode_extra_slots")
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    asked, workers = settings.config.memory.max_running_requests, settings.config.parallel.dp_size
    if asked is None:
        return 0
    each = share(settings.rule, asked, workers)
    return 2 * each if each <= 32 else 0


def _eviction(settings: Settings) -> int:
    value = settings.config.engine.env.get(_EVICTION, str(_DEFAULT_EVICTION))
    if not value.isdecimal():
        raise ConfigError(
            f"engine.env.{_EVICTION}: got {value!r:.60}; expected a whole number.\nCorrect it or leave it out."
        )
    return max(1, int(value))
