"""Algorithms: the contract over every entry, then the widths by the engine's defaults."""

from __future__ import annotations

from typing import Any

import pytest

from specbench import speculative
from specbench.configuration.config import SpeculativeSection
from specbench.errors import ConfigError
from specbench.specs import load_model

TARGET = load_model("Qwen/Qwen3.6-27B")
DRAFT = load_model("z-lab/Qwen3.6-27B-DFlash")
LLAMA = load_model("meta-llama/Meta-Llama-3.1-8B")


@pytest.mark.parametrize("name", speculative.ALGORITHMS)
def test_every_algorithm_answers(name: str) -> None:
    algorithm = speculative.get(name)
    assert algorithm.name == name
    assert algorithm.family in ("none", "eagle", "dflash", "ngram", "frozen_kv_mtp", "uno", "synchronous")
    given = DRAFT if name in ("DFLASH", "DSPARK", "DDTREE", "STANDALONE", "FROZEN_KV_MTP") else None
    section = SpeculativeSection(algorithm=name, draft_model_path="x" if given else None)
    shape = algorithm.shape(section, TARGET, algorithm.draft(TARGET, given), {})
    assert (shape.verify_width == 0) == (name == "none")
    assert shape.longest_accept >= 1 and shape.topk >= 1
    if name != "EAGLE3":
        assert algorithm.check(section) == ()


@pytest.mark.parametrize(
    ("name", "keys", "args", "width", "topk", "accept"),
    [
        ("none", {}, {}, 0, 1, 1),
        ("DFLASH", {}, {}, 16, 1, 16),  # the draft's block_size
        ("DFLASH", {"num_draft_tokens": 8}, {}, 8, 1, 8),
        ("DFLASH", {}, {"speculative_dflash_block_size": 4}, 4, 1, 4),
        ("NEXTN", {}, {}, 4, 1, 4),
        ("NEXTN", {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}, {}, 4, 1, 4),
        ("NEXTN", {"num_steps": 5, "eagle_topk": 1, "num_draft_tokens": 4}, {}, 6, 1, 6),  # a chain: steps + 1
        ("EAGLE", {"num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 16}, {}, 16, 4, 6),
        ("DSPARK", {}, {}, 17, 1, 17),  # the draft's block_size is gamma: gamma + 1
        ("DSPARK", {}, {"speculative_dspark_block_size": 7}, 8, 1, 8),
        ("STANDALONE", {}, {}, 4, 1, 4),
        ("STANDALONE", {"num_steps": 5, "eagle_topk": 2, "num_draft_tokens": 8}, {}, 8, 2, 6),
        ("FROZEN_KV_MTP", {"num_steps": 5, "eagle_topk": 1, "num_draft_tokens": 6}, {}, 6, 1, 6),
        ("UNO", {"num_draft_tokens": 16}, {}, 16, 1, 16),
        ("UNO", {"num_draft_tokens": 5, "eagle_topk": 2, "num_steps": 3}, {}, 5, 2, 4),
        ("DDTREE", {}, {}, 16, 1, 16),  # budget block - 1: a chain
        ("DDTREE", {}, {"speculative_ddtree_budget": 64}, 65, 1, 16),  # nodes and root; no path beyond the block
        ("DDTREE", {}, {"speculative_ddtree_budget": 7}, 16, 1, 8),  # the draft still makes its block
        ("NGRAM", {}, {}, 12, 10, 12),
        ("NGRAM", {"num_draft_tokens": 8}, {"speculative_ngram_max_bfs_breadth": 1}, 8, 1, 8),
    ],
)
def test_widths(name: str, keys: dict[str, int], args: dict[str, Any], width: int, topk: int, accept: int) -> None:
    algorithm = speculative.get(name)
    draft = DRAFT if name in ("DFLASH", "DSPARK", "DDTREE") else None
    shape = algorithm.shape(SpeculativeSection(algorithm=name, **keys), TARGET, draft, args)
    assert (shape.verify_width, shape.topk, shape.longest_accept) == (width, topk, accept)


def test_dspark_verifies_the_anchor_beside_the_block() -> None:
    draft = load_model("RadixArk/Kimi-K3-DSpark")
    shape = speculative.get("DSPARK").shape(SpeculativeSection(algorithm="DSPARK"), TARGET, draft, {})
    assert (shape.verify_width, shape.longest_accept) == (8, 8)


def test_dspark_without_a_word_drafts_seven() -> None:
    shape = speculative.get("DSPARK").shape(SpeculativeSection(algorithm="DSPARK"), TARGET, None, {})
    assert shape.verify_width == 7 + 1


def test_a_standalone_draft_is_the_whole_model() -> None:
    algorithm = speculative.get("STANDALONE")
    assert algorithm.draft(LLAMA, TARGET) is TARGET  # not its multi-token head
    shape = algorithm.shape(SpeculativeSection(algorithm="STANDALONE"), LLAMA, TARGET, {})
    assert (shape.steps, shape.topk, shape.verify_width) == (3, 1, 4)  # not Llama's tree


def test_a_tree_whose_nodes_have_ancestors_of_their_own_keeps_whole_windows() -> None:
    shape = speculative.get("DDTREE").shape(SpeculativeSection(algorithm="DDTREE"), TARGET, DRAFT, {})
    assert shape.own_windows and shape.topk == 1


def test_a_plug_ins_algorithm_is_what_its_description_says() -> None:
    described = {"verify_width": 65, "draft_kv": "dflash", "longest_accept": 9, "default_requests": 16}
    section = SpeculativeSection.model_validate(
        {"algorithm": "my_tree", "num_draft_tokens": 16, "eagle_topk": 4, "custom": described}
    )
    algorithm = speculative.of(section)
    assert (algorithm.name, algorithm.family, algorithm.draft_kv) == ("MY_TREE", "synchronous", "dflash")
    assert algorithm.default_requests == 16
    shape = algorithm.shape(section, TARGET, DRAFT, {})
    assert (shape.verify_width, shape.topk, shape.longest_accept) == (65, 4, 9)
    bare = SpeculativeSection.model_validate({"algorithm": "x", "num_draft_tokens": 6, "custom": {"overlap": True}})
    assert speculative.of(bare).family == "custom"
    assert speculative.of(bare).shape(bare, TARGET, None, {}).longest_accept == 6
    assert speculative.of(bare).default_requests is None


def test_llama_defaults_to_a_tree() -> None:
    shape = speculative.get("EAGLE").shape(SpeculativeSection(algorithm="EAGLE"), LLAMA, None, {})
    assert (shape.steps, shape.topk, shape.verify_width) == (5, 4, 8)


def test_dflash_without_a_block_size_takes_16() -> None:
    shape = speculative.get("DFLASH").shape(SpeculativeSection(algorithm="DFLASH"), TARGET, None, {})
    assert shape.verify_width == 16


def test_nextn_drafts_with_the_targets_head() -> None:
    head = speculative.get("NEXTN").draft(TARGET, None)
    assert head is not None and head.is_builtin_draft
    assert speculative.get("NEXTN").draft(TARGET, TARGET) is head  # a path to the model itself means its head
    assert speculative.get("NGRAM").draft(TARGET, None) is None


@pytest.mark.parametrize(
    ("name", "keys", "key", "allowed"),
    [
        ("none", {"num_draft_tokens": 4}, "num_draft_tokens", "leave it out, or name an algorithm"),
        ("DFLASH", {"num_steps": 3}, "num_steps", "1"),
        ("EAGLE3", {}, "draft_model_path", "the draft's name or folder"),
        ("NEXTN", {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 8}, "num_draft_tokens", "4"),
        ("EAGLE", {"num_steps": 2, "eagle_topk": 2, "num_draft_tokens": 8}, "num_draft_tokens", "at most 7"),
        ("NGRAM", {"draft_model_path": "x"}, "draft_model_path", "leave it out"),
    ],
)
def test_contradictions(name: str, keys: dict[str, Any], key: str, allowed: str) -> None:
    complaint = speculative.get(name).check(SpeculativeSection(algorithm=name, **keys))[0]
    assert (complaint.key, complaint.allowed) == (key, allowed)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DSPRK", "did you mean DSPARK"),
        ("lookahead", "'lookahead' is no algorithm that specbench knows"),
        ("DFLSH", "did you mean DFLASH"),
        ("eagle4", "did you mean EAGLE"),
    ],
)
def test_unknown_names(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        speculative.get(name)
    assert len(str(caught.value).splitlines()) == 2


def test_names_are_not_case_sensitive() -> None:
    assert speculative.get("dflash") is speculative.get("DFLASH")
    assert speculative.get("NONE").name == "none"
