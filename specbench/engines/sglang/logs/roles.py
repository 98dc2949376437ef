"""Target or draft: the engine seldom says it. In: the records of one server. Out: the role of each.

Weights: the draft's model class has a telling name; a draft of a plain class is the second to load on its rank.
Pools: on each rank the target's come first, in every version. A sliding-window target has several KV pools, so there
it is the line "Memory pool end" that separates target from draft.
Graphs: from 0.5.14 the line says it; before, the draft captured after it had loaded its weights.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from ....terms import Role
from .records import Record

#: Class names of draft models, over all examined versions.
DRAFT_CLASS = re.compile(
    r"Draft|DFlash|DSpark|Eagle|MTP|NextN|ForCausalLMNextN|(?:Gemma\w*)AssistantForCausalLM|Medusa|DDTree|LiLiCorr"
)


def assign(records: Sequence[Record]) -> list[Role]:
    """The role of each record, in the records' order. Kinds without a role count as the target's."""
    roles: list[Role] = ["target"] * len(records)
    by_rank: dict[str, list[int]] = defaultdict(list)
    for at, record in enumerate(records):
        by_rank[record.rank].append(at)
    for places in by_rank.values():
        for at in _drafts(records, places):
            roles[at] = "draft"
    return roles


def _drafts(records: Sequence[Record], places: Sequence[int]) -> list[int]:
    """Which of one rank's records belong to the draft."""
    windowed = any(_speaks_of_windows(records[at]) for at in places)
    has_ends = any(records[at].kind == "pool_end" for at in places)
    seen: Counter[str] = Counter()
    draft_loaded = False
    drafts: list[int] = []
    begins: list[int] = []
    for at in places:
        record = records[at]
        match record.kind:
            case "weights_begin":
                begins.append(at)
                is_draft = False
            case "weights_end":
                telling = DRAFT_CLASS.search(record.figures.get("model_class") or "") is not None
                is_draft = telling or seen["target_loaded"] > 0
                draft_loaded = draft_loaded or is_draft
                seen["target_loaded"] += not is_draft
                if is_draft and begins:
                    drafts.append(begins[-1])
                begins.clear()
            case "state_pool" | "pool_end":
                is_draft = seen[record.kind] > 0
                seen[record.kind] += 1
            case "kv_pool":
                name = f"kv {record.figures.get('label')}"
                is_draft = seen["pool_end"] > 0 if windowed and has_ends else seen[name] > 0
                seen[name] += 1
            case "kv_pool_final":
                is_draft = record.figures.get("role") == "draft"
            case "graph_begin" | "graph_end" | "graph_sizes":
                said = record.figures.get("role")
                is_draft = said == "draft" if said in ("draft", "target") else draft_loaded
            case _:
                is_draft = False
        if is_draft:
            drafts.append(at)
    return drafts


def _speaks_of_windows(record: Record) -> bool:
    return record.kind in ("notice:swa_pool", "notice:swa_sizes") or (
        record.kind == "kv_pool" and record.figures.get("label") is not None
    )
