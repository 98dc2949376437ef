"""Attention over the paged KV cache, request by request: what SGLang's backend intel_amx calls."""

import torch
import torch.nn.functional as F  # noqa: N812


def _attend(query, key, value, scale, cap, mask):
    """query: tokens × heads × width; key and value: context × KV heads × width."""
    if cap and cap > 0:
        raise NotImplementedError("sgl_kernel (live/shims): logit_cap")
    group = query.shape[1] // key.shape[1]
    if group > 1:
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    heads_first = [part.transpose(0, 1)[None].to(query.dtype) for part in (query, key, value)]
    return F.scaled_dot_product_attention(*heads_first, attn_mask=mask, scale=scale)[0].transpose(0, 1)


def _only_plain(is_cross, window, sinks):
    if is_cross or window > 0 or sinks is not None:
        raise NotImplementedError("sgl_kernel (live/shims): cross attention, windows and sinks")


def extend_attention(
    query,
    key,
    value,
    out,
    key_buffer,
    value_buffer,
    key_scale,
    value_scale,
    table,
    request_rows,
    lengths,
    extend_lengths,
    extend_starts,
    longest,
    scale,
    cap,
    is_cross,
    window,
    encoder_lengths,
    sinks,
    tree_mask,
    causal,
):
    _only_plain(is_cross, window, sinks)
    offset = 0
    per_request = (request_rows, lengths, extend_lengths, extend_starts)
    for row, length, new, start in zip(*(part.tolist() for part in per_request), strict=True):
        places = table[row, :length].long()
        mask = None
        if tree_mask is not None:
            mask = torch.ones(new, length, dtype=torch.bool)
            mask[:, length - new :] = tree_mask.view(-1)[offset : offset + new * new].view(new, new).bool()
            offset += new * new
        elif causal:
            mask = torch.ones(new, length, dtype=torch.bool).tril(length - new)
        asked = query[start : start + new]
        out[start : start + new] = _attend(asked, key_buffer[places], value_buffer[places], scale, cap, mask)


def decode_attention(
    query,
    key_buffer,
    value_buffer,
    key_scale,
    value_scale,
    out,
    key,
    value,
    locations,
    logits,
    table,
    request_rows,
    lengths,
    scale,
    cap,
    is_cross,
    window,
    encoder_lengths,
    sinks,
):
    _only_plain(is_cross, window, sinks)
    if key is not None:
        new = locations.long()
        key_buffer[new] = key.view(-1, *key_buffer.shape[1:]).to(key_buffer.dtype)
        value_buffer[new] = value.view(-1, *value_buffer.shape[1:]).to(value_buffer.dtype)
    for index, (row, length) in enumerate(zip(request_rows.tolist(), lengths.tolist(), strict=True)):
        places = table[row, :length].long()
        one = slice(index, index + 1)
        out[one] = _attend(query[one], key_buffer[places], value_buffer[places], scale, cap, None)


def build_draft_decode_metadata_cpu(table, request_rows, lengths, topk, steps, pool_len):
    rows = table[request_rows.long()].repeat_interleave(topk, 0)
    if topk > 1:
        for index, length in enumerate(lengths.tolist()):
            for branch in range(topk):
                begin = length + branch * steps
                rows[index * topk + branch, length : length + steps] = table[
                    int(request_rows[index]), begin : begin + steps
                ]
    return rows
