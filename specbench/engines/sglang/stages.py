"""The parts of a start, told by the log line with which each begins. Wording of SGLang 0.5.6 to 0.5.23.

In: lines as they come. Out: the part that a line begins, in words for a person. The engine's own warm-up (a request
that it sends to itself before it says that it is ready) is not the workload's warm-up, and is named so.
"""

from __future__ import annotations

#: In the order of a start. A part lasts until the next begins; parts may come again (the draft's weights and graphs).
IMPORTING = "importing"
CONNECTING = "initialising the GPUs"
LOADING = "loading weights"
ALLOCATING = "allocating pools"
CAPTURING = "capturing graphs"
SERVING = "starting the HTTP server"
OWN_WARMUP = "the engine's own warm-up"

#: text of a line -> the part that it begins. The first that fits counts.
_BEGINS: tuple[tuple[bytes, str], ...] = (
    (b"Init torch distributed begin", CONNECTING),
    (b"Load weight begin", LOADING),
    (b"Load weight end", ALLOCATING),
    (b"apture cuda graph begin", CAPTURING),
    (b"CUDA graph begin", CAPTURING),
    (b"apture piecewise CUDA graph begin", CAPTURING),
    (b"max_total_num_tokens=", SERVING),
    (b"Application startup complete", OWN_WARMUP),
    (b"Uvicorn running on", OWN_WARMUP),
)


def begun(line: bytes) -> str | None:
    """The part that begins with this line; None: it goes on."""
    return next((stage for text, stage in _BEGINS if text in line), None)
