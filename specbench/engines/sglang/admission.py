"""How many running-request slots must be free before SGLang admits new requests.

In: a release, its arguments as it printed them, and its running-request slots. Out: the least number of free slots;
None: one is enough. The non-obvious thing: DFLASH and DSPARK wait without being asked to.

Source: sglang/srt/managers/min_free_slots_delayer.py, scheduler.py and speculative/spec_info.py of 0.5.15 to
0.5.23. 0.5.12 and 0.5.13 have nothing like it. 0.5.14 waits by the same formula, with DFLASH alone, and is steered by a
variable that no log tells (SGLANG_DFLASH_PREFILL_REFILL_TARGET, speculative/dflash_utils.py): it is not predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...versions import at_least
from .flags import released_flags

FLAG = "min-free-slots-delay"
_ARGUMENT = "min_free_slots_delay"

#: `is_dflash_family` of the engine: each of their admissions costs a draft prefill.
_DFLASH_FAMILY = ("DFLASH", "DSPARK")
_LEAST_SLOTS = 8
#: From here on the flag's value holds as it is; before it was capped by the formula, and unused below 8 slots.
_FLAG_HOLDS_SINCE = "0.5.18"


def asked_free_slots(arguments: Mapping[str, Any]) -> int | None:
    """The flag's value; None: not given."""
    asked = arguments.get(_ARGUMENT)
    return asked if isinstance(asked, int) else None


def least_free_slots(version: str, arguments: Mapping[str, Any], slots: int) -> int | None:
    """Free slots without which nothing is admitted while requests run. None: this rule is off, or not the only one."""
    if not at_least(version, released_flags()[FLAG][0]) or _other_rules(arguments):
        return None
    asked = asked_free_slots(arguments)
    algorithm = str(arguments.get("speculative_algorithm")).upper()
    if asked is None:
        return _formula(slots) if algorithm in _DFLASH_FAMILY and slots >= _LEAST_SLOTS else None
    if at_least(version, _FLAG_HOLDS_SINCE):
        least = min(asked, slots)
    else:
        least = min(asked, _formula(slots)) if slots >= _LEAST_SLOTS else 1
    return least if least > 1 else None


def formula(slots: int) -> str:
    """The engine's own figure for that many slots, as arithmetic."""
    return f"min(4, max(2, ({slots} + 5) // 6)) = {_formula(slots)}"


def _formula(slots: int) -> int:
    return min(4, max(2, (slots + 5) // 6))


def _other_rules(arguments: Mapping[str, Any]) -> bool:
    """Whether something else may hold requests back, too, or counts slots by micro-batch."""
    return (
        arguments.get("pp_size") not in (None, 1)
        or arguments.get("pp_max_micro_batch_size") is not None
        or bool(arguments.get("enable_prefill_delayer"))
        or arguments.get("disaggregation_mode") not in (None, "null")
    )
