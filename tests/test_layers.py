"""Bytes per token and per slot, worked by hand from the published dimensions."""

from __future__ import annotations

import pytest

from specbench.errors import SpecError
from specbench.layers import (
    FullAttention,
    GatedDeltaNet,
    IndexedAttention,
    KimiDelta,
    LatentAttention,
    LatentLayout,
    LightningAttention,
    dtype_bytes,
    split,
)

#: Qwen3.6-27B: 4 KV heads of 256; 48 value and 16 key heads of 128, kernel 4.
ATTENTION = FullAttention(kv_heads=4, head_dim=256, v_head_dim=256)
LINEAR = GatedDeltaNet(v_heads=48, k_heads=16, v_dim=128, k_dim=128, kernel=4)


@pytest.mark.parametrize(("tp", "per_layer"), [(1, 4096), (2, 2048), (4, 1024), (8, 1024)])
def test_kv_heads_below_the_ranks_are_replicated(tp: int, per_layer: int) -> None:
    assert ATTENTION.bytes_per_token(tp, 2) == per_layer  # max(1, 4 // tp) × 512 × 2 B


def test_fp8_halves_the_kv_bytes() -> None:
    assert ATTENTION.bytes_per_token(1, dtype_bytes("fp8_e4m3", "x")) == 2048


@pytest.mark.parametrize(
    ("tp", "channels", "conv", "ssm"),
    [(1, 10240, 61440, 3145728), (4, 2560, 15360, 786432), (8, 1280, 7680, 393216)],
)
def test_state_of_one_layer(tp: int, channels: int, conv: int, ssm: int) -> None:
    assert LINEAR.conv_channels(tp) == channels
    assert LINEAR.conv_bytes(tp, 2) == conv
    assert LINEAR.ssm_bytes(tp, 4) == ssm


def test_overlapping_windows_share_columns() -> None:
    # 16 windows of 3 columns each, every one a column further: 18 columns of 10,240 channels
    assert LINEAR.conv_bytes_overlapping(1, 2, 16) == 18 * 10240 * 2


@pytest.mark.parametrize("tp", [5, 7, 9])
def test_an_uneven_split_is_refused(tp: int) -> None:
    with pytest.raises(SpecError, match=f"48 cannot be split over {tp}"):
        LINEAR.ssm_bytes(tp, 4)


def test_kv_heads_that_do_not_divide_the_ranks_are_refused() -> None:
    with pytest.raises(SpecError, match="KV heads: 4 cannot be split over 6"):
        ATTENTION.bytes_per_token(6, 2)


def test_the_message_names_a_size_that_works() -> None:
    with pytest.raises(SpecError, match=r"e\.g\. 4\."):
        split(48, 5, "heads")


def test_the_search_for_a_size_ends_however_many_ranks_are_asked() -> None:
    with pytest.raises(SpecError, match=r"48 cannot be split over 2147483647"):
        split(48, 2**31 - 1, "heads")


def test_an_unknown_type_is_an_error() -> None:
    with pytest.raises(SpecError, match=r"memory\.kv_cache_dtype: no size known for elements of type 'int3'"):
        dtype_bytes("int3", "memory.kv_cache_dtype")


# ── latent attention ─────────────────────────────────────────────────────────────────────────────────────────────────

#: As in DeepSeek-V3 (none) and V3.2 (an indexer of 128).
MLA = LatentAttention(kv_lora_rank=512, rope_dim=64)
SPARSE = LatentAttention(kv_lora_rank=512, rope_dim=64, index_dim=128)


@pytest.mark.parametrize("tp", [1, 8, 16])
def test_every_rank_keeps_the_whole_latent(tp: int) -> None:
    assert MLA.bytes_per_token(tp, 2) == 1152  # (512 + 64) × 2 B
    assert MLA.bytes_per_token(tp, 1) == 576


@pytest.mark.parametrize(
    ("layout", "itemsize", "expected"),
    [
        (LatentLayout(), 2, 1284),  # 1,152 + 128 + 4 B of a scale
        (LatentLayout(), 1, 788),  # 512 + 4 scales × 4 B + 64 × 2 B = 656, + 132
        (LatentLayout(scaled_fp8=False), 1, 708),  # 576 + 132
    ],
)
def test_an_indexer_adds_a_key_and_fp8_its_scales(layout: LatentLayout, itemsize: int, expected: int) -> None:
    assert SPARSE.bytes_laid_out(layout, itemsize) == expected


def test_a_layer_that_reuses_a_selection_keeps_no_index() -> None:
    shared = LatentAttention(kv_lora_rank=512, rope_dim=64, index_dim=128, index_shared=True)
    assert shared.bytes_laid_out(LatentLayout(), 2) == 1152
    assert shared.bytes_laid_out(LatentLayout(shares_index=False), 2) == 1284


def test_pooled_index_keys_are_shared_by_tokens() -> None:
    pooled = LatentAttention(kv_lora_rank=512, rope_dim=0, index_dim=128, index_pool=4)
    assert pooled.bytes_laid_out(LatentLayout(), 2) == 1057  # 1,024 + 132 / 4
    assert pooled.bytes_laid_out(LatentLayout(pools_index=False), 2) == 1156
    uneven = LatentAttention(kv_lora_rank=512, rope_dim=0, index_dim=128, index_pool=5)
    assert uneven.index_bytes(LatentLayout()) == 27  # 132 / 5, rounded up


@pytest.mark.parametrize(("tp", "expected"), [(1, 2112), (2, 1088), (4, 1088)])
def test_the_index_of_qsa_is_whole_on_every_rank(tp: int, expected: int) -> None:
    # 2 KV heads × 512 × 2 B = 2,048, from two ranks on 1,024; a bf16 key of 128 for every 4 tokens: 64
    qsa = IndexedAttention(kv_heads=2, head_dim=256, v_head_dim=256, index_heads=1, index_dim=128, compress_ratio=4)
    assert qsa.bytes_per_token(tp, 2) == expected


def test_state_of_kda_and_lightning_layers() -> None:
    kda = KimiDelta(heads=32, head_dim=128, kernel=4)
    assert kda.conv_bytes(1, 2) == 73728  # 3 × 32 × 128 channels × 3 columns × 2 B
    assert kda.ssm_bytes(1, 4) == 2097152  # 32 × 128 × 128 × 4 B
    assert (kda.conv_bytes(8, 2), kda.ssm_bytes(8, 4)) == (9216, 262144)
    with pytest.raises(SpecError, match="KDA heads: 32 cannot be split over 12"):
        kda.ssm_bytes(12, 4)
    lightning = LightningAttention(heads=32, head_dim=128)
    assert (lightning.conv_bytes(1, 2), lightning.ssm_bytes(1, 4)) == (0, 2097152)
    assert lightning.conv_bytes_overlapping(1, 2, 4) == 0


def test_shared_windows_of_kda_take_the_channels_for_the_columns() -> None:
    # 0.5.14 and 0.5.15, 4 windows of (3, 12288): 3 × (4 + 12,288 - 1) × 2 B instead of 4 × 73,728
    assert KimiDelta(heads=32, head_dim=128, kernel=4).conv_bytes_overlapping(1, 2, 4) == 73746
