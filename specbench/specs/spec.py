"""One model as a value, read from its config.json by `models.load_model`."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ..architectures.contract import Architecture
from ..checkpoint.headers import Checkpoint
from ..hf import HfConfig
from ..layers import KvLayer, Layer, StateLayer, UnevenSplitError, parts
from ..layers.side import SideState
from ..units import Interval
from ..weights import Part
from . import weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelSpec:
    """One model, read from its config.json. `eq=False`: a value by identity, so that weights are computed once."""

    name: str
    folder: Path
    architecture: str  # as config.json names it
    layers: tuple[Layer, ...]
    context_len: int  # tokens, of the config (SGLang's derived context length)
    dtype: str
    ssm_dtype: str | None  # of the recurrent state, as the config asks; None: the engine's default
    multimodal: bool
    vision_layers: int | None  # vision_config.num_hidden_layers (Kimi-K3: vt_…): SGLang reads no other key
    vision_hidden: int | None
    quantization: str | None  # method of a quantized checkpoint, as its config names it
    quantization_names: frozenset[str]  # what --quantization may say without changing anything
    fp8_kv_of: str | None  # the checkpoint asks for KV in fp8: its method as SGLang calls it (modelopt_fp4)
    why_no_weights: str  # what of family or quantization is not known; empty: the config tells the weights
    block_size: int | None  # block drafts: tokens of a block (DSpark: the drafted ones alone)
    trained_on_layers: int | None  # DFlash drafts: layers of the target
    config: HfConfig
    family: Architecture
    checkpoint: Checkpoint | None = None  # tensors of safetensors files beside config.json
    is_builtin_draft: bool = False  # the target's own multi-token head

    @property
    def attention_layers(self) -> tuple[KvLayer, ...]:
        """The layers that keep KV."""
        return _attention_layers(self)

    @property
    def state_layers(self) -> tuple[StateLayer, ...]:
        """The layers that keep a state per request."""
        return _state_layers(self)

    @property
    def side_state(self) -> SideState | None:
        """What a state slot keeps besides; None: nothing."""
        return self.family.side_state(self.config) if self.family.side_state is not None else None

    def weights_bytes(
        self, tp: int, *, attention_tp: int | None = None, stages: tuple[int, ...] = (), fp4: bool = False
    ) -> Interval | None:
        """Bytes on one rank; None where the family or its quantization does not tell them (`why_no_weights`).

        `attention_tp`: ranks of one attention, where data-parallel attention makes them fewer than `tp`. `stages`:
        decoder layers of each pipeline stage; the heaviest stage counts. `fp4`: the card computes in FP4, so that
        weights in it need not be repacked; False: it does not, or is not known.
        """
        if self.why_no_weights and self.checkpoint is None:
            return None
        return weights.weights_bytes(self, tp, attention_tp or tp, stages if len(stages) > 1 else (), fp4)

    def tensors(self, tp: int) -> Iterable[Part]:
        """What the config says is loaded on a rank, in load order; of an unknown quantization, as if of none."""
        return weights.tensors(self, tp)

    def weights_words(self, tp: int) -> str:
        """Where the bytes come from, and how far they can be relied on."""
        return weights.weights_words(self, tp)

    def why_not_split(self, tp: int, attention_tp: int) -> UnevenSplitError | None:
        """What of the model does not divide over the ranks. `attention_tp`: ranks that share one attention."""
        return weights.why_not_split(self, tp, attention_tp)

    def builtin_draft(self) -> ModelSpec | None:
        """The model's own multi-token-prediction head as a draft; None when it has none."""
        return _builtin_draft(self)

    def as_draft(self) -> ModelSpec:
        """What SGLang makes of the model when it is named as a draft: its own head where it has one, or is taken to."""
        return _as_draft(self)


@functools.lru_cache(maxsize=64)
def _attention_layers(spec: ModelSpec) -> tuple[KvLayer, ...]:
    return tuple(part for part in parts(spec.layers) if isinstance(part, KvLayer))


@functools.lru_cache(maxsize=64)
def _state_layers(spec: ModelSpec) -> tuple[StateLayer, ...]:
    return tuple(part for part in parts(spec.layers) if isinstance(part, StateLayer))


@functools.lru_cache(maxsize=64)
def _builtin_draft(spec: ModelSpec) -> ModelSpec | None:
    layers = spec.family.draft_layers(spec.config) if spec.family.draft_layers else ()
    if not layers:
        return None
    return replace(spec, name=f"{spec.name} (MTP head)", layers=layers, is_builtin_draft=True)


@functools.lru_cache(maxsize=64)
def _as_draft(spec: ModelSpec) -> ModelSpec:
    head = _builtin_draft(spec)
    if head is None and spec.family.head_as_draft and not spec.is_builtin_draft:
        counted = HfConfig(where=spec.config.where, data={**spec.config.data, "num_nextn_predict_layers": 1})
        head = _builtin_draft(replace(spec, config=counted))
    return head or spec
