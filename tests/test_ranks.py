"""Which tensors a rank loads: pipeline stages, data-parallel attention."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.ranks import HEAD_ON_EVERY_STAGE, even_stages, of_attention_ranks, of_stage
from specbench.specs import load_model
from specbench.units import GIB
from specbench.weights import Part, RotaryTable, Tensor


def tensor(module: str, size: int = 1) -> Tensor:
    return Tensor(size, module=module)


#: Four layers, of which the second and the last have attention; the rotary table comes with the first attention.
MODEL: tuple[Part, ...] = (
    tensor("visual.norm", 1),
    tensor("model.embed_tokens", 2),
    tensor("model.layers.0.linear_attn.out_proj", 4),
    RotaryTable(8, 1),
    tensor("model.layers.1.self_attn.qkv_proj", 8),
    tensor("model.layers.2.mlp.down_proj", 16),
    tensor("", 32),  # a buffer of the layer before it
    tensor("model.layers.3.self_attn.qkv_proj", 64),
    tensor("model.norm", 128),
    tensor("lm_head", 256),
    tensor("model.layers.1.self_attn", 512),  # made after loading
)


def sizes(parts: Sequence[Part]) -> list[int]:
    return [part.bytes for part in parts]


def test_a_stage_has_its_layers_and_the_ends_of_the_model() -> None:
    first = list(of_stage(MODEL, (2, 2), 0, head_everywhere=False))
    second = list(of_stage(MODEL, (2, 2), 1, head_everywhere=False))
    assert sizes(first) == [1, 2, 4, 32, 8, 512]  # the table has 8 × 1 × 4 B
    assert sizes(second) == [1, 16, 32, 32, 64, 128, 256]  # its own table comes before its first attention
    assert isinstance(second[3], RotaryTable)
    assert 256 in sizes(list(of_stage(MODEL, (2, 2), 0, head_everywhere=True)))


def test_a_tied_head_is_a_copy_on_the_last_stage() -> None:
    tied = [part for part in MODEL if not isinstance(part, Tensor) or part.module != "lm_head"]
    assert sizes(list(of_stage(tied, (3, 1), 1, head_everywhere=False))) == [1, 32, 64, 128, 2]
    assert sizes(list(of_stage(tied, (4,), 0, head_everywhere=False))).count(2) == 1


def test_layers_that_do_not_divide_go_to_the_last_stages() -> None:
    # SGLang 0.5.16, get_pp_indices: 61 layers over 4 stages
    assert even_stages(61, 4) == (15, 15, 15, 16)
    assert even_stages(7, 3) == (2, 2, 3)
    assert even_stages(2, 4) == (1, 1)


def test_attention_is_split_over_its_own_ranks() -> None:
    all_ranks = [tensor("model.layers.0.self_attn.o_proj", 1), tensor("model.layers.0.mlp.down_proj", 1)]
    attention = [tensor("model.layers.0.self_attn.o_proj", 2), tensor("model.layers.0.mlp.down_proj", 2)]
    found = of_attention_ranks(all_ranks, attention)
    assert found is not None and sizes(list(found)) == [2, 1]
    mixer = [tensor("model.layers.0.mixer.in_proj")]
    assert of_attention_ranks(mixer, mixer) is None


def test_a_stage_of_latent_attention_has_the_copies_of_its_layers() -> None:
    """Two stages of DeepSeek-V3: together they load what one rank does, and an own rotary table each."""
    model = load_model("deepseek-ai/DeepSeek-V3")
    parts = tuple(model.tensors(8))
    stages = [sum(sizes(list(of_stage(parts, (30, 31), n, head_everywhere=False)))) for n in (0, 1)]
    table = next(part.bytes for part in parts if isinstance(part, RotaryTable))
    assert sum(stages) == sum(sizes(parts)) + table


def test_the_head_of_gpt_oss_is_on_every_stage() -> None:
    """models/gpt_oss.py makes it on any rank: two stages have 201,088 × 2,880 × 2 B more than one, and a table."""
    model = load_model("openai/gpt-oss-20b")
    parts, everywhere = tuple(model.tensors(1)), model.architecture in HEAD_ON_EVERY_STAGE
    stages = [sum(sizes(list(of_stage(parts, (12, 12), n, head_everywhere=everywhere)))) for n in (0, 1)]
    table = next(part.bytes for part in parts if isinstance(part, RotaryTable))
    assert sum(stages) - sum(sizes(parts)) == 1_158_266_880 + table


def test_the_heaviest_stage_counts() -> None:
    """Qwen3.6-27B on two H200s: 26.00 GiB on both stages, SGLang 0.5.12 and 0.5.16."""
    size = load_model("Qwen/Qwen3.6-27B").weights_bytes(1, stages=(32, 32))
    assert size is not None
    assert round(size.point / GIB, 2) == 26.0
    # DP2 with data-parallel attention of two ranks: attention, embedding and image encoder whole, the rest halved
    split = load_model("Qwen/Qwen3.6-27B").weights_bytes(2, attention_tp=1)
    assert split is not None
    assert round(split.point / GIB, 2) == 33.99
