"""Trees of draft tokens: built, read back from a mask, verified greedily."""

import torch

_FULL_MASK, _QUERY_ONLY = 0, 1


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    """The longest path from the root whose tokens are what the target would have said."""
    batch, steps = accept_index.shape
    target = target_predict.reshape(candidates.shape)
    for request in range(batch):
        node = last = accepted = 0
        place = int(retrive_index[request, 0])
        accept_index[request, 0] = place
        for _ in range(1, steps):
            node = int(retrive_next_token[request, node])
            while node != -1 and int(candidates[request, node]) != int(target[request, last]):
                node = int(retrive_next_sibling[request, node])
            if node == -1:
                break
            predicts[place] = target[request, last]
            accepted += 1
            place = int(retrive_index[request, node])
            accept_index[request, accepted] = place
            last = node
        accept_token_num[request] = accepted
        predicts[place] = target[request, last]


def build_tree_kernel_efficient_cpu(
    parent_list,
    selected_index,
    lengths,
    tree_mask,
    positions,
    retrieve_index,
    next_token,
    next_sibling,
    topk,
    depth,
    nodes,
    mode,
):
    offset = 0
    for request in range(lengths.numel()):
        length = int(lengths[request])
        parents = _parents(parent_list[request], selected_index[request], topk, nodes)
        place = [0] * nodes
        for node in range(1, nodes):
            place[node] = place[parents[node]] + 1
        for node in range(nodes):
            retrieve_index[request, node] = request * nodes + node
            positions[request * nodes + node] = length + place[node]
        _link(next_token[request], next_sibling[request], parents)
        seen = _ancestors(parents)
        if int(mode) == _FULL_MASK:  # nodes × (length + nodes), request after request
            view = tree_mask[offset : offset + nodes * (length + nodes)].view(nodes, length + nodes)
            view[:, :length] = True
            view[:, length:] = seen
            offset += nodes * (length + nodes)
        elif int(mode) == _QUERY_ONLY:
            tree_mask.view(-1)[request * nodes * nodes : (request + 1) * nodes * nodes] = seen.reshape(-1)
        else:
            raise NotImplementedError("sgl_kernel (live/shims): a bit-packed tree mask")


def _parents(parent_list, selected, topk, nodes):
    found = [0] * nodes
    for node in range(1, nodes):
        row = int(selected[node - 1]) // topk
        if row > 0:
            found[node] = 1 + selected.tolist().index(int(parent_list[row]))
    return found


def _link(next_token, next_sibling, parents):
    next_token.fill_(-1)
    next_sibling.fill_(-1)
    for node in range(len(parents) - 1, 0, -1):
        before = int(next_token[parents[node]])
        next_token[parents[node]] = node
        if before != -1:
            next_sibling[node] = before


def _ancestors(parents):
    seen = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for node in range(len(parents)):
        seen[node, 0] = True
        up = node
        while up:
            seen[node, up] = True
            up = parents[up]
    return seen


def reconstruct_indices_from_tree_mask(
    tree_mask, lengths, positions, retrieve_index, next_token, next_sibling, batch, nodes
):
    """n-gram drafts come as a mask: positions and links are read off it."""
    mask = tree_mask.view(batch, nodes, nodes).bool() & torch.ones(nodes, nodes, dtype=torch.bool).tril(-1)
    index = torch.arange(nodes)
    positions.view(-1)[:] = (mask.sum(-1) + lengths.view(-1, 1)).reshape(-1)
    retrieve_index.view(-1)[:] = torch.arange(batch * nodes)
    parents = torch.where(mask, index, -1).max(-1).values
    children = torch.where(mask, index[:, None], nodes).min(1).values
    next_token.view(batch, nodes)[:] = torch.where(children < nodes, children, -1)
    together = (parents[:, :, None] == parents[:, None, :]) & (index[:, None] > index[None, :])
    siblings = torch.where(together, index[:, None], nodes).min(1).values
    next_sibling.view(batch, nodes)[:] = torch.where((parents >= 0) & (siblings < nodes), siblings, -1)
