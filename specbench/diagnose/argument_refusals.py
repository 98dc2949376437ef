"""Arguments that an engine version refuses, as a table: the text, what contradicts what, and the ways out of it.

In: nothing. Out: `REFUSED`, which `faults_arguments` goes through. Sources: server_args.py of 0.5.8 to 0.5.18,
arg_groups/*_hook.py of 0.5.20 to 0.5.23, configs/model_config.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_STRATEGY = "memory.mamba_radix_cache_strategy"
_NO_OVERLAP = "memory.disable_overlap_schedule"
_NO_RADIX = "memory.disable_radix_cache"
_INTERVAL = "engine.args.mamba-track-interval"

Figures = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way out: keys with their values, what it costs, and what is not said by flags."""

    set: Mapping[str, Any]
    note: str
    env: Mapping[str, str] | None = None
    dropped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal: its text, what contradicts what, its ways out, and a release that prints it."""

    text: re.Pattern[str]
    why: str
    ways: Callable[[Figures], tuple[Way, ...]]
    version: str


def _always(*ways: Way) -> Callable[[Figures], tuple[Way, ...]]:
    return lambda _: ways


_WITHOUT_RADIX = Way(set={_NO_RADIX: True}, note="no prefix cache: every prompt is computed whole")
_BUFFERED = "keeps the prefix cache; a request holds more state slots"
_EXTRA_BUFFER = Way(set={_STRATEGY: "extra_buffer"}, note=_BUFFERED)
_NO_BUFFER = Way(
    set={_STRATEGY: "no_buffer", _NO_OVERLAP: True},
    note="keeps the prefix cache with fewer state slots; steps do not overlap, which is slower",
)
_AUTO = Way(
    set={_STRATEGY: "auto"}, note="the engine chooses a strategy that fits", dropped="--mamba-radix-cache-strategy"
)
_FLASHINFER = Way(
    set={"engine.args.attention-backend": "flashinfer"},
    note="another attention backend; leaving it out lets the engine choose",
)


def _longer_interval(figures: Figures) -> tuple[Way, ...]:
    """Of draft tokens, or of pages: the least interval above both that is a whole number of pages."""
    interval = int(figures["interval"])
    width, page = int(figures.get("width") or 1), int(figures.get("page") or 1)
    needed = math.ceil(max(interval, width) / math.lcm(page, 64)) * math.lcm(page, 64)
    longer = Way(set={_INTERVAL: needed}, note=f"states are kept every {needed:,} tokens: coarser prefixes")
    if figures.get("width"):
        return (longer, Way(set={"speculative.num_draft_tokens": interval}, note="fewer tokens verified per step"))
    return (longer, Way(set={"memory.page_size": math.gcd(interval, page)}, note="smaller pages"))


def _shorter_context(figures: Figures) -> tuple[Way, ...]:
    longest = int(figures["longest"])
    return (
        Way(set={"memory.context_length": longest}, note="the model's own length"),
        Way(
            set={},
            note="the model was not trained for such positions: outputs may be wrong",
            env={"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"},
        ),
    )


REFUSED: tuple[Refusal, ...] = (
    Refusal(
        text=re.compile(r"Speculative decoding for (?P<model>\w{1,100}) is not compatible with radix cache"),
        why="Speculation with a prefix cache needs the strategy extra_buffer up to 0.5.13, where auto means no_buffer.",
        ways=_always(
            Way(set={_STRATEGY: "extra_buffer"}, note=_BUFFERED, env={"SGLANG_ENABLE_SPEC_V2": "1"}), _WITHOUT_RADIX
        ),
        version="0.5.13",
    ),
    Refusal(
        text=re.compile(r"mamba extra_buffer is not compatible with --disable-radix-cache"),
        why="extra_buffer keeps states for the prefix cache, which --disable-radix-cache switches off.",
        ways=_always(
            Way(set={_STRATEGY: "no_buffer"}, note="without a prefix cache steps overlap all the same"),
            Way(set={_NO_RADIX: False}, note=_BUFFERED, dropped="--disable-radix-cache"),
        ),
        version="0.5.13",
    ),
    Refusal(
        text=re.compile(
            r"mamba_track_interval (?P<interval>\d{1,9}) must be greater than or equal to "
            r"speculative_num_draft_tokens (?P<width>\d{1,9})"
        ),
        why="States are kept every {interval} tokens (mamba_track_interval), and {width} are verified in one step: no "
        "more than one interval may be.",
        ways=_longer_interval,
        version="0.5.13",
    ),
    Refusal(
        text=re.compile(r"mamba_track_interval (?P<interval>\d{1,9}) must be divisible by page_size (?P<page>\d{1,9})"),
        why="States are kept every {interval} tokens (mamba_track_interval), which is no whole number of pages of "
        "{page}.",
        ways=_longer_interval,
        version="0.5.13",
    ),
    Refusal(
        text=re.compile(r"extra_buffer is not supported for (?P<model>\w{1,100})(?:;| model)"),
        why="The strategy extra_buffer is not made for {model}.",
        ways=_always(_AUTO, _NO_BUFFER, _WITHOUT_RADIX),
        version="0.5.16",
    ),
    Refusal(
        text=re.compile(r"extra_buffer_lazy (?:unsupported|is not yet supported) with spec"),
        why="The strategy extra_buffer_lazy does not work with speculation before 0.5.18.",
        ways=_always(_EXTRA_BUFFER),
        version="0.5.16",
    ),
    Refusal(
        text=re.compile(r"extra_buffer_lazy unsupported under PD|Lazy extra buffer requires overlap"),
        why="The strategy extra_buffer_lazy needs overlap scheduling, and no disaggregation of prefill and decode.",
        ways=_always(_EXTRA_BUFFER),
        version="0.5.18",
    ),
    Refusal(
        text=re.compile(
            r"--mamba-radix-cache-strategy (?P<strategy>\w{1,30}) needs mamba state, got (?P<model>\w{1,100})"
        ),
        why="The strategy {strategy} is for models with state, and {model} has none.",
        ways=_always(_AUTO),
        version="0.5.22",
    ),
    Refusal(
        text=re.compile(r"no_buffer do not support overlap schedule"),
        why="The strategy no_buffer does not run with overlap scheduling, which is on unless it is switched off.",
        ways=_always(
            Way(set={_NO_OVERLAP: True}, note="steps do not overlap, which is slower"), _EXTRA_BUFFER, _WITHOUT_RADIX
        ),
        version="0.5.16",
    ),
    Refusal(
        text=re.compile(r"no_buffer only supports page_size=1"),
        why="The strategy no_buffer keeps pages of one token.",
        ways=_always(Way(set={"memory.page_size": 1}, note="pages of one token"), _EXTRA_BUFFER),
        version="0.5.16",
    ),
    Refusal(
        text=re.compile(r"no_buffer do not support trtllm_mha"),
        why="The strategy no_buffer does not run with the attention backend trtllm_mha.",
        ways=_always(_EXTRA_BUFFER, _FLASHINFER),
        version="0.5.16",
    ),
    Refusal(
        text=re.compile(r"--enable-linear-replayssm-spec with [\w/-]{1,60} requires a KDA"),
        why="--enable-linear-replayssm-spec works with DFLASH and DSPARK for models of KDA layers only (Kimi Linear).",
        ways=_always(
            Way(
                set={"engine.args.enable-linear-replayssm-spec": False},
                note="the scratch holds whole states again",
                dropped="--enable-linear-replayssm-spec",
            )
        ),
        version="0.5.18",
    ),
    Refusal(
        text=re.compile(r"--enable-linear-replayssm requires --mamba-(?:scheduler|radix-cache)-strategy no_buffer"),
        why="--enable-linear-replayssm works with the strategy no_buffer only.",
        ways=_always(
            _NO_BUFFER,
            Way(
                set={"engine.args.enable-linear-replayssm": False},
                note="states are written at every step again",
                dropped="--enable-linear-replayssm",
            ),
        ),
        version="0.5.16",
    ),
    Refusal(
        text=re.compile(r"--enable-unified-memory \+ (?P<algorithm>[\w/]{1,60})"),
        why="--enable-unified-memory does not go with this speculation ({algorithm}) in this version.",
        ways=_always(
            Way(
                set={"engine.args.enable-unified-memory": False},
                note="state and KV get pools of their own again",
                dropped="--enable-unified-memory",
            )
        ),
        version="0.5.22",
    ),
    Refusal(
        text=re.compile(r"(?P<model>\w{1,100}) does not support (?P<backend>\w{1,30}) attention backend"),
        why="{model} does not run with the attention backend {backend}: its first layer may be no attention layer.",
        ways=_always(_FLASHINFER),
        version="0.5.16",
    ),
    Refusal(
        text=re.compile(
            r"context_length \((?P<asked>\d{1,15})\) is greater than the derived context_length "
            r"\((?P<longest>\d{1,15})\)"
        ),
        why="A context of {asked} tokens is asked, and the model was made for {longest}.",
        ways=_shorter_context,
        version="0.5.16",
    ),
)
