"""Simulated acceptance that would not be: an algorithm that does not look at it, or a length that it cannot reach."""

from __future__ import annotations

from collections.abc import Iterator

from .... import speculative
from ....configuration.config import RunConfig
from ....errors import SpecbenchError
from ....specs import ModelSpec
from ..acceptance import HONOURED_SINCE, honoured
from ..given import server_args
from ..sizing.contract import Rule
from ..widths import with_default_widths
from .refusal import Refusal

_KEY = "workload.simulate_acc_len"
_FORCED = "engine.allow_refused: true starts it all the same; acceptance is then the drafts' own, whatever pages say"


def refusals(config: RunConfig, version: str, rule: Rule) -> Iterator[Refusal]:
    length, name = config.workload.simulate_acc_len, speculative.canonical(config.speculative.algorithm)
    if length is None:
        return
    if config.engine.attach is not None:
        yield Refusal(
            key=_KEY,
            value=length,
            reason="engine.attach takes a server that somebody else started, with variables of its own",
            allowed="leave it out",
            forced=_FORCED,
        )
    if name == "none":
        yield Refusal(
            key=_KEY,
            value=length,
            reason="without speculation nothing is drafted",
            allowed="leave it out, or a speculative.algorithm",
            forced=_FORCED,
        )
    elif not honoured(version, name):
        since = HONOURED_SINCE.get(name)
        has = [known for known in speculative.ALGORITHMS if honoured(version, known)]
        yield Refusal(
            key=_KEY,
            value=length,
            reason=f"sglang {version} does not simulate the acceptance of {name}"
            + (f", {since} does" if since is not None else ""),
            allowed=f"leave it out; with {', '.join(has)} it is simulated" if has else "leave it out",
            forced=_FORCED,
        )


def of_models(config: RunConfig, rule: Rule, target: ModelSpec, draft: ModelSpec | None) -> Iterator[Refusal]:
    """The engine cuts a wished length silently at the longest one that a step can yield."""
    length = config.workload.simulate_acc_len
    if length is None or speculative.canonical(config.speculative.algorithm) == "none":
        return
    try:
        algorithm = speculative.of(config.speculative)
        drafts = with_default_widths(config.speculative, rule, target)
        longest = algorithm.shape(drafts, target, draft, server_args(config)).longest_accept
    except SpecbenchError:
        return
    if length > longest:
        yield Refusal(
            key=_KEY,
            value=length,
            reason=f"a step of {longest} tokens cannot yield more than {longest}, bonus token included",
            allowed=f"1 to {longest}",
            tolerated=True,
        )
