"""Bytes per token and per slot, worked by hand from the published dimensions."""

from __future__ import annotations

import pytest

from specbench.errors import SpecError
from specbench.layers import FullAttention, GatedDeltaNet, dtype_bytes, split

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
