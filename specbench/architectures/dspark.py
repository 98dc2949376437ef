"""DSpark drafts: DFlash's layers with a Markov head, by which the tokens of a block see each other.

The block of its config counts drafted tokens only (gamma). The head (two tables of the vocabulary by `markov_rank`, and
for some kinds a gate) is not modelled. Source: SGLang 0.5.16 and 0.5.23, models/dspark.py,
speculative/dspark_components/dspark_config.py.
"""

from __future__ import annotations

from ..hf import HfConfig
from . import dflash
from .contract import Architecture


def block_size(config: HfConfig) -> int | None:
    """Drafted tokens of a step; a head that the target's checkpoint bundles has a name of its own for them."""
    return config.integer_or("dspark_block_size", 0) or dflash.block_size(config)


ARCHITECTURE = Architecture(
    family="dspark",
    layers=dflash.layers,
    tensors=dflash.tensors,
    tensors_unknown="the Markov head of a DSpark draft is not modelled",
    block_size=block_size,
)
