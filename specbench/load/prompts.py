"""Prompts of an exact length: token ids, drawn at random with a seed, so that a length check is arithmetic.

Every request gets a prompt of its own: no two share a first token run, so the prefix cache cannot answer one of them
from another and spoil the figures.
"""

from __future__ import annotations

import random

#: Ids that are ordinary text tokens in the vocabularies of the supported models: above the control and byte tokens of
#: their beginning, and below Llama's vocabulary (32,000). A smaller vocabulary ends the range earlier: an engine dies
#: of an id that its model has not.
FIRST_ID = 1_000
LAST_ID = 31_000
#: Of fewer ids, prompts that share no beginning cannot be drawn.
SMALLEST_VOCABULARY = 256


def token_ids(length: int, *, seed: int, step: str, index: int, vocabulary: int | None = None) -> list[int]:
    """`length` ids of request `index` of `step`. The same arguments give the same ids on every machine.

    `vocabulary`: how many ids the model knows, not fewer than SMALLEST_VOCABULARY; None: not known, so enough.
    """
    source = random.Random(f"{seed}/{step}/{index}")
    return source.choices(_ids(vocabulary), k=length)


def _ids(vocabulary: int | None) -> range:
    """The usual ones, as far as the model has them; of a small vocabulary its upper half."""
    end = LAST_ID if vocabulary is None else min(LAST_ID, vocabulary)
    return range(min(FIRST_ID, end // 2), end)
