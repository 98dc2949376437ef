"""What a log tells of a server that hangs: stacks, or why there are none; ranks that say nothing while others do.

In: a case. Out: sentences for causes. Source: utils/watchdog.py, pyspy_dump_schedulers (utils/common.py up to 0.5.12,
utils/cudacore_pyspy_dump_utils.py since) of 0.5.6.post2 to 0.5.23.
"""

from __future__ import annotations

from ..rank_names import in_words
from ..reading.rank_progress import named_ranks
from .case import Case

#: What hung, where nothing tells more.
OFTEN = (
    "a collective operation in which another rank is missing, a kernel that is compiled, or a very long prefill, or a "
    "process or a card that stood still"
)
#: How py-spy comes to where the engine looks for it, and may read.
GET_PY_SPY = "pip install py-spy in the server's environment; in a container it also needs --cap-add SYS_PTRACE"


def stacks(case: Case) -> str:
    """'What hung stands in the stacks that are dumped above this line (py-spy).', or that there are none and why."""
    kinds = {notice.kind for notice in case.log.notices}
    if "stacks_dumped" in kinds:
        return "What hung stands in the stacks that are dumped above this line (py-spy)."
    refused = next((notice for notice in case.log.notices if notice.kind == "stacks_refused"), None)
    if refused is None:
        return (
            "What hung would stand in stacks above this line, and there are none in this log. To get them: "
            f"{GET_PY_SPY}."
        )
    why = str(refused.values.get("why", "")).strip().rstrip(".")[:160]
    return f"What hung is not known: there are no stacks, for py-spy failed ({why}). To get them: {GET_PY_SPY}."


def silent_ranks(case: Case) -> str:
    """Of several ranks those whose own watchdog said nothing, as a sentence with a space before it; "": none.

    The watchdog is a thread of the rank's process, and ends the whole server: one that says nothing was stopped with
    its process, or had not waited as long yet.
    """
    every = named_ranks(case.log)
    told = {one.rank for one in case.log.failures if one.kind == "watchdog_timeout"} & set(every)
    silent = set(every) - told
    if not told or not silent:
        return ""
    who = in_words(silent)
    if len(silent) == 1:
        return (
            f" {who} does not say so: the others may wait for it (it was stopped, or its card is stuck), or it had not "
            "waited as long yet."
        )
    return (
        f" {who} do not say so: the others may wait for one of them (it was stopped, or its card is stuck), or they "
        "had not waited as long yet."
    )
