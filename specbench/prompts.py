"""Prompts of an exact length: token ids, drawn at random with a seed, so that a length check is arithmetic.

Every request gets a prompt of its own: no two share a first token run, so the prefix cache cannot answer one of them
from another and spoil the figures.
"""

from __future__ import annotations

import random

#: Ids that are ordinary text tokens in the vocabularies of the supported models: above the control and byte tokens of
#: their beginning, and below the smallest vocabulary (Llama's 32,000).
FIRST_ID = 1_000
LAST_ID = 31_000


def token_ids(length: int, *, seed: int, step: str, index: int) -> list[int]:
    """`length` ids of request `index` of `step`. The same arguments give the same ids on every machine."""
    source = random.Random(f"{seed}/{step}/{index}")
    return source.choices(range(FIRST_ID, LAST_ID), k=length)
