"""The short causal convolution before a linear layer, with its window per request."""

import itertools

import torch
import torch.nn.functional as F  # noqa: N812


def causal_conv1d_fn_cpu(
    x,
    weight,
    bias,
    activation=None,
    conv_states=None,
    has_initial_state=None,
    cache_indices=None,
    query_start_loc=None,
    seq_lens_cpu=None,
    **_,
):
    channels, width = weight.shape
    out = torch.empty(x.shape, dtype=x.dtype)
    bounds = query_start_loc.tolist()
    for index, (begin, end) in enumerate(itertools.pairwise(bounds)):
        slot = int(cache_indices[index])
        if slot < 0 or end <= begin:
            continue
        past = conv_states[slot] if bool(has_initial_state[index]) else torch.zeros_like(conv_states[slot])
        whole = torch.cat([past.to(x.dtype), x[:, begin:end]], 1)
        added = None if bias is None else bias.float()
        said = F.conv1d(whole[None].float(), weight[:, None].float(), added, groups=channels)[0]
        out[:, begin:end] = (F.silu(said) if activation in ("silu", "swish") else said).to(x.dtype)
        conv_states[slot] = whole[:, -(width - 1) :].to(conv_states.dtype)
    return out


def causal_conv1d_update_cpu(
    x,
    conv_state,
    weight,
    bias=None,
    activation=None,
    conv_state_indices=None,
    intermediate_conv_window=None,
    intermediate_state_indices=None,
    retrieve_next_token=None,
    retrieve_next_sibling=None,
    retrieve_parent_token=None,
    **_,
):
    """One or several tokens per request; windows of every token are kept when they are only to be verified.

    Of a tree of drafts the parents are worked out here and left in `retrieve_parent_token` for the layer that follows,
    as SGLang's fused kernel does: they come in as uninitialised memory.
    """
    tokens = x.unsqueeze(-1) if x.dim() == 2 else x
    requests, _channels, steps = tokens.shape
    indices = conv_state_indices.long()[:requests]
    real = indices >= 0
    start = window = conv_state[indices.clamp(min=0)].to(x.dtype)
    windows, out = [], torch.empty_like(tokens)
    if retrieve_next_token is not None:
        _write_parents(retrieve_parent_token, retrieve_next_token, retrieve_next_sibling, requests, steps)
    for step in range(steps):
        if retrieve_parent_token is not None and step:
            parents = retrieve_parent_token[:requests, step].long()
            chosen = torch.stack(windows, 1)[torch.arange(requests), parents.clamp(min=0)]
            window = torch.where((parents >= 0)[:, None, None], chosen, start)
        whole = torch.cat([window, tokens[:, :, step : step + 1]], -1)
        said = (whole.float() * weight.float()).sum(-1)
        if bias is not None:
            said = said + bias.float()
        out[:, :, step] = (F.silu(said) if activation in ("silu", "swish", True) else said).to(x.dtype)
        window = whole[:, :, 1:]
        windows.append(window)
        if intermediate_conv_window is not None:
            given = intermediate_state_indices
            rows = (given[:requests] if given is not None else torch.arange(requests)).long()
            intermediate_conv_window[rows[real], step] = window[real].to(intermediate_conv_window.dtype)
    if intermediate_conv_window is None:
        conv_state[indices[real]] = window[real].to(conv_state.dtype)
    return out.squeeze(-1) if x.dim() == 2 else out


def _write_parents(parents, first_child, next_sibling, requests, steps):
    parents[:requests] = 0
    for request in range(requests):
        children, siblings = first_child[request].tolist(), next_sibling[request].tolist()
        for token in range(steps):
            if children[token] != -1:
                parents[request, children[token]] = token
            if siblings[token] != -1:
                parents[request, siblings[token]] = parents[request, token]
