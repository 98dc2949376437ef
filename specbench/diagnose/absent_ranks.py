"""Ranks that a server has and its log has not: a log of one of several nodes, or one of which lines were picked."""

from __future__ import annotations

from ..configuration.config import RunConfig
from ..engines.contract import PoolReport
from ..rank_names import in_words
from ..units import counted


def absent_ranks(config: RunConfig, pools: PoolReport) -> str | None:
    """How many of the server's ranks the log has, and which; None: all of them, none with a prefix, or it has no pools.

    Whole copies of the model (plain data parallelism) are servers of their own and are not counted.
    """
    parallel = config.parallel
    ranks = sorted({own.rank for own in pools.ranks if own.rank})
    there_are = parallel.tp_size * parallel.pp_size
    if not ranks or parallel.replicas > 1 or len(ranks) >= there_are:
        return None
    return f"{counted(len(ranks), 'rank')} of {there_are} in this log ({in_words(ranks)})"
