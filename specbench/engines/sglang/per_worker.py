"""Requests at once, asked of a whole server: each data-parallel worker resolves its share; predictions count shares.

In: a configuration and the asked requests. Out: those of one worker. The non-obvious thing: only DP attention divides
them; every worker of plain data parallelism takes all.
"""

from __future__ import annotations

from ...configuration.config import RunConfig
from ...errors import ConfigError
from .sizing import rule_for, rule_version
from .sizing.steps import share


def requests_of_worker(config: RunConfig, asked: int | None) -> int | None:
    """`asked` of the server -> asked of one worker, by the rule of the engine's version; None: not asked.

    A version without a rule still has a record to read: there DP attention alone divides.
    """
    if asked is None:
        return None
    try:
        rule = rule_for(rule_version(config.engine))
    except ConfigError:
        return asked // config.parallel.attention_dp
    return share(rule, asked, config.parallel.attention_dp)


def wanted_of_worker(config: RunConfig) -> int:
    """Running requests of one worker: as asked, else as many as the workload sends at once, else one."""
    asked = requests_of_worker(config, config.memory.max_running_requests)
    if asked is None:
        return 1 if config.workload.request_rate or config.workload.load_only else max(config.workload.concurrency)
    return max(1, asked)
