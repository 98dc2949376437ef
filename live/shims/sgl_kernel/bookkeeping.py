"""Which KV row belongs to which token of which request: tables that are written, rows that are moved."""

import ctypes

import torch


def assign_req_to_token_pool_cpu(request_rows, table, starts, ends, locations, pool_len):
    taken = 0
    for row, start, end in zip(request_rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[row, start:end] = locations[taken : taken + end - start].to(table.dtype)
        taken += end - start


def assign_extend_cache_locs_cpu(request_rows, table, starts, ends, out, pool_len):
    written = 0
    for row, start, end in zip(request_rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        out[written : written + end - start] = table[row, start:end].to(out.dtype)
        written += end - start


def assign_draft_cache_locs_contiguous_cpu(request_rows, table, lengths, out, pool_len, topk, columns):
    width = topk * columns
    for index, (row, length) in enumerate(zip(request_rows.tolist(), lengths.tolist(), strict=True)):
        out[index * width : (index + 1) * width] = table[row, length : length + width].to(out.dtype)


def fill_bonus_tokens_cpu(accepted, accepted_lengths, bonus, stride):
    count = accepted_lengths.numel()
    last = torch.arange(count) * stride + accepted_lengths.long() - 1
    bonus[:count] = accepted.reshape(-1)[last].to(bonus.dtype)


def fill_accept_out_cache_loc_cpu(accepted_index, locations, out):
    accepted = accepted_index.reshape(-1)
    accepted = accepted[accepted > -1].long()
    out[: accepted.numel()] = locations[accepted]


def rotate_input_ids_cpu(input_ids, starts, lengths, next_ids, select_index=None):
    """Every request's ids one to the left, with its next id at the end."""
    for index, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        if length <= 0:
            continue
        input_ids[start : start + length - 1] = input_ids[start + 1 : start + length].clone()
        last = start + length - 1 if select_index is None else int(select_index[index])
        input_ids[last] = next_ids.reshape(-1)[index]


def copy_all_layer_kv_cache_cpu(pointers, strides, targets, sources):
    for pointer, stride in zip(pointers.tolist(), strides.tolist(), strict=True):
        # All rows are read before one is written: the copy may be in place.
        rows = [ctypes.string_at(pointer + source * stride, stride) for source in sources.tolist()]
        for target, row in zip(targets.tolist(), rows, strict=True):
            ctypes.memmove(pointer + target * stride, row, stride)
