"""Families of models, by the name that config.json gives. To add one: a file here and its names."""

from __future__ import annotations

import difflib

from ..errors import SpecError
from . import (
    bailing,
    decoder,
    deepseek,
    dflash,
    dspark,
    falcon_h1,
    gigachat35,
    glm5_next,
    gpt_oss,
    granite_hybrid,
    jet_nemotron,
    kimi_k3,
    kimi_linear,
    lfm2,
    mimo_v2,
    minicpm_sala,
    moe,
    nemotron_h,
    qwen3_5,
    qwen3_next,
    qwen4_exp,
)
from .contract import Architecture
from .pending import NOT_SERVED, PENDING, advice, why

ARCHITECTURES: dict[str, Architecture] = {
    "Qwen3_5ForConditionalGeneration": qwen3_5.ARCHITECTURE,
    "Qwen3_5ForCausalLM": qwen3_5.ARCHITECTURE,
    "Qwen3_5MoeForConditionalGeneration": qwen3_5.ARCHITECTURE,
    "Qwen3_5MoeForCausalLM": qwen3_5.ARCHITECTURE,
    "Qwen3NextForCausalLM": qwen3_next.ARCHITECTURE,
    "NemotronHForCausalLM": nemotron_h.ARCHITECTURE,
    "FalconH1ForCausalLM": falcon_h1.ARCHITECTURE,
    "GraniteMoeHybridForCausalLM": granite_hybrid.ARCHITECTURE,
    "Lfm2ForCausalLM": lfm2.ARCHITECTURE,
    "Lfm2MoeForCausalLM": lfm2.MOE,
    "JetNemotronForCausalLM": jet_nemotron.ARCHITECTURE,
    "Qwen4ExpForConditionalGeneration": qwen4_exp.ARCHITECTURE,
    "DeepseekV2ForCausalLM": deepseek.ARCHITECTURE,
    "DeepseekV3ForCausalLM": deepseek.ARCHITECTURE,
    "DeepseekV32ForCausalLM": deepseek.ARCHITECTURE,
    "GlmMoeDsaForCausalLM": deepseek.ARCHITECTURE,
    "GigaChat35ForCausalLM": gigachat35.ARCHITECTURE,
    "Glm5NextForConditionalGeneration": glm5_next.ARCHITECTURE,
    "KimiK3ForConditionalGeneration": kimi_k3.ARCHITECTURE,
    "KimiLinearForCausalLM": kimi_linear.ARCHITECTURE,
    "BailingMoeV2_5ForCausalLM": bailing.ARCHITECTURE,
    "BailingMoeV3ForCausalLM": bailing.ARCHITECTURE,
    "MiniCPMSALAForCausalLM": minicpm_sala.ARCHITECTURE,
    "DFlashDraftModel": dflash.ARCHITECTURE,
    "DFlash2DraftModel": dflash.SELECTOR,
    "DFlash2BeamDraftModel": dflash.SELECTOR,
    "Qwen3DSparkModel": dspark.ARCHITECTURE,
    "DSparkDraftModel": dspark.ARCHITECTURE,
    "LingDSparkModel": dspark.ARCHITECTURE,
    "GptOssForCausalLM": gpt_oss.ARCHITECTURE,
    "MiMoV2FlashForCausalLM": mimo_v2.ARCHITECTURE,
    "LlamaForCausalLM": decoder.ARCHITECTURE,
    "Qwen2ForCausalLM": decoder.ARCHITECTURE,
    "Qwen3ForCausalLM": decoder.ARCHITECTURE,
    "Qwen3MoeForCausalLM": moe.ARCHITECTURE,
    "MixtralForCausalLM": moe.ARCHITECTURE,
    "LlamaForCausalLMEagle3": decoder.EAGLE3,
}


_MOST_NAMED = 4  # architectures in a message
_LONGEST = 90  # characters of a name in it


def architecture(name: str, where: str) -> Architecture:
    """The family of an architecture name. SpecError with the known names and the file to add."""
    if name in PENDING or name in NOT_SERVED:
        raise SpecError(f"{where}architectures: {why(name)}.\n{advice(name)}")
    if name not in ARCHITECTURES:
        near = difflib.get_close_matches(name[:_LONGEST], ARCHITECTURES, n=_MOST_NAMED, cutoff=0.0)
        more = len(ARCHITECTURES) - len(near)
        raise SpecError(
            f"{where}architectures: {name!r:.{_LONGEST}} is not known (nearest: {', '.join(near)}; {more} more).\n"
            f"{advice(None)}"
        )
    return ARCHITECTURES[name]
