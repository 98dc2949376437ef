"""Simulated acceptance: the engine takes drafts as accepted at a wished length, whatever the target would have said.

In: a configuration and an environment. Out: the variables that ask for it, and whether a version and algorithm look at
them. Sources: spec_utils.py, eagle_info.py (0.5.12), eagle_utils.py and ngram_worker.py (from 0.5.14),
dspark_worker_v2.py (from 0.5.16), dflash_worker_v2.py (from 0.5.17). The non-obvious thing: where
it is not looked at nothing is said, so that a real acceptance would pass for the wished one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ... import speculative
from ...configuration.config import RunConfig
from ...versions import at_least

LENGTH = "SGLANG_SIMULATE_ACC_LEN"
METHOD = "SGLANG_SIMULATE_ACC_METHOD"
#: Alternates between the two whole lengths around the wished one, so that the mean is as wished. Up to 0.5.10 the
#: default draws from a normal distribution that is cut off, and misses it.
_METHOD = "match-expected"
#: First release whose verification looks at `LENGTH`.
HONOURED_SINCE: Mapping[str, str] = {
    "EAGLE": "0.5.6",
    "EAGLE3": "0.5.6",
    "NEXTN": "0.5.6",
    "STANDALONE": "0.5.6",
    "NGRAM": "0.5.14",
    "DSPARK": "0.5.16",
    "DFLASH": "0.5.17",
}
#: Of an engine, a fork or a patch: whoever names a variable so replaces acceptance.
_NAMES = ("SIMULATE_ACC", "SIM_ACC")


def honoured(version: str, algorithm: str) -> bool:
    """Whether this release simulates the acceptance of an algorithm."""
    since = HONOURED_SINCE.get(speculative.canonical(algorithm))
    return since is not None and at_least(version, since)


def variables(config: RunConfig) -> dict[str, str]:
    """What `workload.simulate_acc_len` adds to the server's environment; what `engine.env` says wins."""
    length = config.workload.simulate_acc_len
    if length is None:
        return {}
    return {LENGTH: f"{length:g}", METHOD: _METHOD} | {
        name: value for name, value in config.engine.env.items() if name in (LENGTH, METHOD)
    }


def simulated(config: RunConfig, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables by which the server's acceptance is simulated; empty: it is the model's own.

    `environ`: what the server inherits beside `engine.env`.
    """
    everything = {**(environ or {}), **config.engine.env, **variables(config)}
    return {name: value for name, value in everything.items() if _asks(name, value)}


def _asks(name: str, value: str) -> bool:
    """Whether the variable turns it on: how it is drawn (`METHOD` and the like) does not."""
    if not any(part in name for part in _NAMES) or name.endswith(("_METHOD", "_TOKEN_MODE", "_GREEDY")):
        return False
    try:
        return float(value) > 0
    except ValueError:
        return value.strip().lower() not in ("", "false", "no", "off")
