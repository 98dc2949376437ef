"""What SGLang makes of the flags before it sizes anything: strategy, overlap, widths, types, page, context, fraction.

In: a configuration and its models. Out: `Settings`, per version. The non-obvious thing is how far one flag reaches:
speculation decides overlap, overlap decides the meaning of `auto`, and both decide the slots per request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ... import speculative
from ...budget_types import Emulation
from ...configuration.config import RunConfig
from ...errors import ConfigError
from ...gpus import GpuSpec, load_gpu
from ...layers import dtype_bytes, split
from ...specs import ModelSpec, load_model
from ...speculative.contract import Algorithm, DraftKv, Shape
from ...versions import at_least
from . import families
from .adaptive import adapted
from .arguments import reject_keyed
from .emulation import emulation
from .given import server_args, switched_on
from .sizing import rule_for, rule_version
from .sizing.contract import Rule
from .sizing.fraction import Defaults, decodes_with_graphs, defaults
from .sizing.graph_sizes import captured_sizes
from .splitting import uneven
from .widths import with_default_widths

Strategy = Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"]

DEFAULT_RATIO = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A configuration with everything resolved that sizing needs."""

    config: RunConfig
    version: str  # whose rules apply
    rule: Rule
    target: ModelSpec
    draft: ModelSpec | None  # None: the algorithm drafts without a model
    gpu: GpuSpec  # the card whose memory the server has, or is given: the emulated one
    emulation: Emulation | None
    algorithm: str
    family: str  # which scheduling branch of the engine applies: none, eagle, dflash, ngram, …
    draft_kv: DraftKv  # how the engine charges the draft's KV
    keeps_draft_kv: bool  # whether the draft has a KV pool of its own
    shape: Shape
    attention_tp: int
    attention_dp: int
    strategy: Strategy | None  # None: no radix cache
    overlap: bool
    slots_per_request: int
    requests: int | None  # with the engine's default of 48
    fraction: float  # as on `gpu`; `passed` gives the one on the command line
    fraction_source: str
    kv_itemsize: int
    draft_kv_itemsize: int  # of the draft's own pool
    conv_itemsize: int
    ssm_itemsize: int
    ssm_dtype: str
    page_size: int
    context_len: int
    graphs: bool  # CUDA graphs for decoding
    defaults: Defaults | None  # what the engine takes by the size of the card that it sees; None: a host
    radix: bool  # prefix cache: neither turned off nor impossible for the model
    draft_path: bool  # the draft has a path, given or the target's own
    bare_fp8: bool  # sparse latent attention keeps fp8 without scales

    def passed(self, fraction: float | None = None) -> Settings:
        """With the fraction on the command line: what applies to free memory that was measured on the larger card.

        `fraction`: as a log shows it; None: as computed. Without emulation nothing changes.
        """
        if self.emulation is None:
            return self
        told = self.emulation.passed if fraction is None else fraction
        return dataclasses.replace(
            self, fraction=told, fraction_source=f"passed for {self.emulation.asked:g} of {self.emulation.card}"
        )

    def captured(self, requests: int) -> tuple[int, ...]:
        """Batches for which a worker that resolved so many requests captures graphs for decoding; empty: none."""
        if self.defaults is None:
            return ()
        return captured_sizes(
            self.version,
            self.defaults.decode_sizes,
            requests,
            width=self.shape.verify_width or 1,
            ranks=self.attention_tp if self.attention_dp > 1 else 1,
        )

    @property
    def on_cpu(self) -> bool:
        """SGLang's CPU engine: host memory, other layouts here and there."""
        return server_args(self.config).get("device") == "cpu"


def settings(
    config: RunConfig, model: ModelSpec | None = None, gpu: GpuSpec | None = None, *, free_now_bytes: int | None = None
) -> Settings:
    """Resolve a configuration. ConfigError or SpecError when it cannot be sized.

    `free_now_bytes`: what NVML shows as free on the card that is to emulate another; None: go by the GPU table.
    """
    reject_keyed(config.engine)
    version = rule_version(config.engine)
    rule = rule_for(version)
    args, env = server_args(config), config.engine.env
    target = model or load_model(config.model)
    host = gpu or load_gpu(config.gpu.name)
    card = load_gpu(config.gpu.emulate, "gpu.emulate") if config.gpu.emulate else host
    algorithm = speculative.of(config.speculative)
    given = load_model(config.speculative.draft_model_path) if config.speculative.draft_model_path else None
    draft = algorithm.draft(target, given)
    drafts = with_default_widths(config.speculative, rule, target)
    shape = adapted(algorithm.shape(drafts, target, draft, args), config, version, args)
    problem = uneven(config, target, draft)
    if problem is not None:
        raise ConfigError(f"parallel.tp_size: {problem.reason}.\nSizes that work: {problem.allowed}.")
    memory, parallel = config.memory, config.parallel
    attention_dp = parallel.attention_dp
    overlap = overlaps(config, rule, algorithm)
    radix = keeps_prefixes(config, version, target)
    strategy = resolve_strategy(config, rule, overlap, version, target)
    if parallel.pp_size > 1 or (strategy == "no_buffer" and memory.mamba_radix_cache_strategy == "auto"):
        overlap = False
    ssm_dtype = _state_dtype(config, rule, target)
    requests = memory.max_running_requests
    if requests is None:
        requests = algorithm.default_requests
    taken = None if card.is_host else defaults(config, version, rule, target, algorithm.name, card.total_mib)
    asked = _fraction(config, rule, card, taken)
    emulated = None
    if config.gpu.emulate:
        emulated = emulation(config, rule, version, host=host, card=card, asked=asked, free_now_bytes=free_now_bytes)
    return Settings(
        config=config,
        version=version,
        rule=rule,
        target=target,
        draft=draft,
        gpu=card,
        emulation=emulated,
        algorithm=algorithm.name,
        family=algorithm.family,
        draft_kv=algorithm.draft_kv,
        keeps_draft_kv=algorithm.keeps_draft_kv,
        shape=shape,
        attention_tp=split(parallel.tp_size, attention_dp, "parallel.tp_size over parallel.dp_size"),
        attention_dp=attention_dp,
        strategy=strategy,
        overlap=overlap,
        slots_per_request=slots_per_request(rule, strategy, overlap, bool(shape.verify_width), env),
        requests=requests,
        fraction=asked[0],
        fraction_source=asked[1] if emulated is None else f"{asked[1]}, on {emulated.card}",
        kv_itemsize=_kv_itemsize(config, rule, target, host),
        draft_kv_itemsize=_draft_kv_itemsize(config, rule, target, draft, host),
        conv_itemsize=dtype_bytes(env.get("SGLANG_MAMBA_CONV_DTYPE", "bfloat16"), "engine.env.SGLANG_MAMBA_CONV_DTYPE"),
        ssm_itemsize=dtype_bytes(ssm_dtype, "memory.mamba_ssm_dtype"),
        ssm_dtype=ssm_dtype,
        page_size=_page_size(config, rule, strategy, target),
        context_len=memory.context_length or target.context_len,
        graphs=decodes_with_graphs(version, args),
        defaults=_as_seen(config, version, rule, target, algorithm.name, host, taken),
        radix=radix,
        draft_path=given is not None or families.drafts_from_own_path(target, version),
        bare_fp8=families.bare_fp8(rule, host, args),
    )


def overlaps(config: RunConfig, rule: Rule, algorithm: Algorithm) -> bool:
    """Whether scheduling overlaps computing, before the strategy has its say, and pipeline stages, which end it."""
    family, env = algorithm.family, config.engine.env
    if config.memory.disable_overlap_schedule:
        return False
    if family == "eagle" and not rule.draft_loads_first:
        # spec v2 up to 0.5.13: an environment variable, off by default up to 0.5.10; before 0.5.13 it runs chains only
        runs = config.speculative.eagle_topk in (None, 1) or at_least(rule.version, "0.5.13")
        return runs and switched_on(env, "SGLANG_ENABLE_SPEC_V2", default="eagle" in rule.overlap_with)
    return family in rule.overlap_with


def keeps_prefixes(config: RunConfig, version: str, target: ModelSpec) -> bool:
    """Whether there is a radix cache: it can be turned off, and the engine does so for some models.

    The decode server of a pair has none unless it is asked for (_handle_pd_disaggregation, every version).
    """
    args = server_args(config)
    if args.get("disaggregation_mode") == "decode" and not args.get("disaggregation_decode_enable_radix_cache"):
        return False
    speculates = speculative.canonical(config.speculative.algorithm) != "none"
    disabled = families.disables_radix_cache(target.architecture, version, speculates=speculates)
    if speculates and target.state_layers:
        strategy = config.memory.mamba_radix_cache_strategy
        disabled = disabled or families.drops_radix_cache_for_drafts(target.architecture, version, strategy)
    return not (config.memory.disable_radix_cache or disabled)


def resolve_strategy(config: RunConfig, rule: Rule, overlap: bool, version: str, target: ModelSpec) -> Strategy | None:
    """What `auto` becomes. None without a radix cache: then there is nothing to keep."""
    if not keeps_prefixes(config, version, target):
        return None
    asked = config.memory.mamba_radix_cache_strategy
    if asked != "auto":
        return asked
    if rule.auto_strategy == "no_buffer":
        return "no_buffer"
    pages = (families.fixed_page_size(target, rule) or config.memory.page_size or 1) > 1
    backend = server_args(config).get("linear_attn_backend", "triton")
    able = backend == "triton" and families.supports_extra_buffers(target.architecture, version)
    return "extra_buffer" if (overlap or pages) and (able or not target.state_layers) else "no_buffer"


def slots_per_request(
    rule: Rule, strategy: Strategy | None, overlap: bool, speculates: bool, env: Mapping[str, str]
) -> int:
    """q: slots of state that one running request needs (SGLang: _calculate_mamba_ratio)."""
    if strategy is None:
        return 1
    if strategy == "no_buffer":
        return 5 if rule.five_slots_without_buffers else 3
    if rule.extra_buffer_always_four:
        return 4 if speculates else 5
    more = 1 if strategy == "extra_buffer_lazy" or not overlap else 2
    skips_lock = at_least(rule.version, "0.5.17") and switched_on(env, "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK")
    return 3 + more - (1 if skips_lock else 0)


def _state_dtype(config: RunConfig, rule: Rule, target: ModelSpec) -> str:
    if config.memory.mamba_ssm_dtype is not None:
        return config.memory.mamba_ssm_dtype
    if rule.rings != "none" and server_args(config).get("enable_linear_replayssm_spec"):
        return "float32"
    if rule.state_dtype_default == "float32":
        return "float32"
    return config.engine.env.get("SGLANG_MAMBA_SSM_DTYPE") or target.ssm_dtype or "float32"


def _page_size(config: RunConfig, rule: Rule, strategy: Strategy | None, target: ModelSpec) -> int:
    """Tokens of a page. Without buffers a state fits no page but of one token; sparse attention fixes its own."""
    fixed = families.fixed_page_size(target, rule)
    if fixed is not None:
        return fixed
    version = rule_version(config.engine)
    settled = families.settles_strategy(target.architecture, version) and families.settles_pages(version)
    return 1 if strategy == "no_buffer" and target.state_layers and settled else config.memory.page_size or 1


def _kv_itemsize(config: RunConfig, rule: Rule, target: ModelSpec, host: GpuSpec) -> int:
    """Bytes of a KV element. When nothing is asked, sparse latent attention takes fp8 on Blackwell, and a quantized
    checkpoint may ask for it (SGLang: configure_kv_cache_dtype)."""
    name = config.memory.kv_cache_dtype
    if name == "auto" and families.is_sparse_latent(target):
        return 1 if host.is_blackwell else 2
    if name == "auto" and families.obeys_fp8_kv(target, rule, rule_version(config.engine)):
        return 1
    return dtype_bytes(target.dtype if name == "auto" else name, "memory.kv_cache_dtype")


def _draft_kv_itemsize(config: RunConfig, rule: Rule, target: ModelSpec, draft: ModelSpec | None, host: GpuSpec) -> int:
    """The target's type up to 0.5.16, where it is written into the arguments. Then --kv-cache-dtype, from 0.5.18 after
    a flag of its own; auto is then what the draft's checkpoint asks for, of DFLASH drafts their model type in any case
    (SGLang: configure_kv_cache_dtype, _resolve_dflash_draft_cell_size)."""
    if not at_least(rule.version, "0.5.17"):
        return _kv_itemsize(config, rule, target, host)
    own = server_args(config).get("speculative_draft_kv_cache_dtype")
    name = own if isinstance(own, str) else config.memory.kv_cache_dtype
    if name != "auto":
        key = "memory.kv_cache_dtype" if own is None else "engine.args.speculative-draft-kv-cache-dtype"
        return dtype_bytes(name, key)
    spec = draft or target
    if not isinstance(own, str) and families.is_sparse_latent(target):
        return _kv_itemsize(config, rule, target, host)  # written into the arguments
    by_model = speculative.of(config.speculative).draft_kv != "dflash"
    if by_model and families.draft_obeys_fp8_kv(spec, rule, rule_version(config.engine)):
        return 1
    return dtype_bytes(spec.dtype, "memory.kv_cache_dtype")


def _fraction(config: RunConfig, rule: Rule, card: GpuSpec, taken: Defaults | None) -> tuple[float, str]:
    """The fraction as on `card`: given, or the engine's default."""
    given = config.memory.mem_fraction_static
    if given is not None:
        return given, "given"
    if taken is None:
        raise ConfigError(
            f"memory.mem_fraction_static: left out, and {card.name} has no total from which the engine's default would "
            "follow.\nGive the fraction."
        )
    if taken.fraction <= 0:
        raise ConfigError(
            f"memory.mem_fraction_static: left out, and the engine's default comes out at {taken.fraction:.3f}: its "
            "reserve for prefill chunks and graphs is larger than the card.\n"
            "Give the fraction, or smaller memory.chunked_prefill_size and memory.cuda_graph_max_bs."
        )
    return taken.fraction, f"default of {rule.label}"


def _as_seen(
    config: RunConfig,
    version: str,
    rule: Rule,
    target: ModelSpec,
    algorithm: str,
    host: GpuSpec,
    taken: Defaults | None,
) -> Defaults | None:
    """Chunk and graphs by the card that is there: an emulated one gives its fraction only."""
    if taken is None or not config.gpu.emulate or host.is_host:
        return taken
    return defaults(config, version, rule, target, algorithm, host.total_mib)
