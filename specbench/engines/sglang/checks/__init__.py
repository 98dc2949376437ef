"""What a SGLang version refuses of a configuration, before it touches a GPU.

In: a configuration. Out: refusals, most basic first, each with its key, what is allowed and the engine's own words
where they are known (verbatim). Sources: server_args.py of 0.5.12 and 0.5.16, arg_groups/ of 0.5.16 and 0.5.23, real
logs. Keys that the engine would silently override are refused too: a configuration should mean what it says.
"""

from __future__ import annotations

from .... import speculative
from ....configuration.config import RunConfig
from ....errors import SpecbenchError
from ....specs import ModelSpec, load_model
from ..flags import facts_version
from ..sizing import rule_for
from . import acceptance, latent, lengths, models, parallelism, rings, speculation, state, trees
from .refusal import Refusal

__all__ = ["Refusal", "check"]

_GROUPS = (parallelism.refusals, speculation.refusals, state.refusals, lengths.refusals, acceptance.refusals)


def check(config: RunConfig, model: ModelSpec | None = None) -> list[Refusal]:
    """Every refusal of this configuration. Empty: none that is known. ConfigError for a version without rules.

    A model that cannot be read is for `load_model` to refuse, not for this.
    """
    version = facts_version(config.engine)
    rule = rule_for(version)
    found = [refusal for group in _GROUPS for refusal in group(config, version, rule)]
    try:
        target = model or load_model(config.model)
    except SpecbenchError:
        return found
    draft = _draft(config, target)
    found.extend(models.refusals(config, version, target))
    found.extend(trees.refusals(config, version, rule, target))
    found.extend(latent.refusals(config, version, rule, target))
    found.extend(parallelism.of_models(config, rule, target, draft))
    found.extend(acceptance.of_models(config, rule, target, draft))
    found.extend(lengths.context(config, target))
    found.extend(rings.refusals(config, version, target))
    found.extend(lengths.chunk_of_pages(config, version, rule, target))
    if target.state_layers:
        found.extend(state.of_hybrid(config, version, rule, target))
    else:
        found.extend(state.of_plain(config, version, target))
    return found


def _draft(config: RunConfig, target: ModelSpec) -> ModelSpec | None:
    """The draft, as far as it can be read: what is wrong with it is for sizing to say."""
    section = config.speculative
    try:
        given = load_model(section.draft_model_path) if section.draft_model_path else None
        return speculative.of(section).draft(target, given)
    except SpecbenchError:
        return None
