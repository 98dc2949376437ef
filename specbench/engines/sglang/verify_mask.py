"""The crash of EAGLE and NEXTN at a batch as large as the largest CUDA graph, with the triton attention backend.

In: a failure of the log, the server's arguments, its context length. Out: the figures of the attention mask that did
not fit; None: another failure, or other figures. Or, before a start: a configuration, and the requests that it runs at
once. Out: whether its first full batch would be its last.

The verify step writes a mask of draft tokens × (context + draft tokens) for each request; the buffer of the graphs
lacks the second part. Hybrid models allocate the mask outside the buffer, and as long as the context where overlap
scheduling does not know the lengths, so only a full batch overruns it.

No flag was found that keeps the graphs: a smaller largest graph moves the crash to batches of that size, and a larger
one is cut down to the running requests.

Source: layers/attention/triton_backend.py (init_cuda_graph_state, _update_target_verify_buffers), hybrid_linear_attn_
backend.py, speculative/eagle_worker_common.py, eagle_utils.py, model_executor/runner/base_cuda_graph_runner.py of
0.5.16. 0.5.17 allocates both parts (layers/attention/verify_mask.py). Others were not read for this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...gpus import load_gpu
from .form import Form
from .given import server_args
from .resolve import Settings
from .sizing.fraction import card_defaults

if TYPE_CHECKING:  # a prediction reads no log
    from ..contract import Failure

_TOO_SMALL = Form(
    "mask_buffer_too_small",
    "The expanded size of the tensor ({buffer:int}) must match the existing size ({mask:int}) "
    "at non-singleton dimension 0.",
)
KNOWN_IN = "0.5.16"
MENDED_IN = "0.5.17"
AVOIDED_BY = "disable-cuda-graph"
_FILE, _FUNCTION = "triton_backend.py", "in _update_target_verify_buffers"


@dataclass(frozen=True, slots=True, kw_only=True)
class FullMask:
    """The mask of a batch that fills the largest graph; sizes are entries."""

    requests: int
    draft_tokens: int
    context: int

    @property
    def buffer(self) -> int:
        return self.requests * self.draft_tokens * self.context

    @property
    def missing(self) -> int:
        return self.requests * self.draft_tokens**2


def full_mask(failure: Failure, arguments: Mapping[str, Any], context: int | None) -> FullMask | None:
    """What the failure's two sizes are made of, when they are exactly these products."""
    where = str(failure.values.get("where"))
    draft_tokens = arguments.get("speculative_num_draft_tokens")
    sizes = _TOO_SMALL.read(failure.text) if _FILE in where and where.endswith(_FUNCTION) else None
    if sizes is None or not context or not isinstance(draft_tokens, int) or draft_tokens < 1:
        return None
    found = FullMask(requests=sizes["buffer"] // (draft_tokens * context), draft_tokens=draft_tokens, context=context)
    return found if (sizes["buffer"], sizes["mask"]) == (found.buffer, found.buffer + found.missing) else None


_ALGORITHMS = ("EAGLE", "NEXTN")
#: The verify step goes to the backend of prefill or of decode, by a flag of its own.
_BACKENDS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
#: Flags by which graphs for decoding may be others than the defaults.
_OTHER_GRAPHS = (
    *("cuda_graph_bs", "cuda_graph_bs_decode", "cuda_graph_config", "cuda_graph_backend_decode"),
    *("disable_decode_cuda_graph", "disable_cuda_graph_padding"),
)


def ends_at_full_batch(resolved: Settings, running: int) -> bool:
    """Whether a server that runs so many requests at once is known to end when they do. False: not known to."""
    config, arguments, card = resolved.config, server_args(resolved.config), load_gpu(resolved.config.gpu.name)
    if card.is_host:
        return False
    first, *others = (arguments.get(name) for name in _BACKENDS)
    largest = config.memory.cuda_graph_max_bs
    if largest is None:
        largest = card_defaults(card.total_mib, config.parallel.tp_size, resolved.rule)[1]
    return (
        config.engine.version == KNOWN_IN
        and resolved.algorithm in _ALGORITHMS
        and resolved.shape.topk == 1
        and bool(resolved.target.state_layers)
        and config.parallel.dp_size == 1
        and first == "triton"
        and all(other in (None, "triton") for other in others)
        and resolved.graphs
        and not any(arguments.get(name) for name in _OTHER_GRAPHS)
        and resolved.overlap
        and 0 < running <= largest
    )
