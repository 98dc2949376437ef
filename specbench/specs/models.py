"""Models by name or folder: those that are shipped, and any folder with a config.json."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from .. import quantization
from ..architectures import architecture
from ..architectures.pending import advice, family_of, why
from ..checkpoint import headers
from ..errors import ConfigError, SpecError
from ..gpus import LEAST_PART, plain
from ..hf import HfConfig, read_config
from ..paths import DATA, exists, resolve, shortened
from ..quantization.contract import Recipe
from .spec import ModelSpec

_MODELS = DATA / "models"
_MOST_NAMED = 8  # models in a message


def known_models() -> tuple[str, ...]:
    """Names of the shipped models and drafts, e.g. Qwen/Qwen3.6-27B."""
    return tuple(sorted(folder.name.replace("--", "/", 1) for folder in _MODELS.iterdir() if folder.is_dir()))


def shipped_folder(name: str) -> Path | None:
    """Where the config.json of a shipped model lies; None: there is none of that name."""
    folder = _MODELS / name.replace("/", "--", 1)
    return folder if "/" in name and ".." not in name and exists(folder / "config.json") else None


def named_by(path: str) -> str | None:
    """The shipped model whose name a path on some machine ends with, compared by letters and digits alone.

    In a cache of the Hub (`models--org--name/snapshots/…`) the name stands further up.
    """
    parts = PurePosixPath(path.rstrip("/")).parts
    cached = [part.rpartition("--")[2] for part in parts if part.startswith("models--")]
    wanted = {plain(name) for name in (*parts[-1:], *cached)}
    return next((name for name in known_models() if plain(name.rpartition("/")[2]) in wanted), None)


def by_usual_name(model: str) -> str:
    """The shipped model that is meant by a name without its organisation ('deepseek-v3'); else `model` as it came.

    A folder of that name comes first, and so does whatever `load_model` knows.
    """
    if "/" in model or Path(model).is_dir():
        return model
    return named_by(model) or model


def load_model(name_or_folder: str | Path) -> ModelSpec:
    """A shipped model by name, or any folder that holds a config.json. SpecError when neither is there or usable."""
    name = str(name_or_folder)
    shipped = shipped_folder(name)
    if shipped is not None:
        return _load(shipped, name, 0)
    try:
        folder = resolve(name_or_folder, kind="model")
    except ConfigError:
        folder = None
    if folder is not None and (folder / "config.json").is_file():
        return _load(folder, name, hash(((folder / "config.json").stat().st_mtime_ns, headers.state(folder))))
    pending = family_of(name)
    if pending is not None:
        raise SpecError(f"model: {name!r}: {why(pending)}.\n{advice(pending)}")
    near = _with(name) or difflib.get_close_matches(name, known_models(), n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise SpecError(
        f"model: {shortened(name)!r} is neither shipped nor a folder with a config.json.{hint}\n"
        f"Shipped: {_shipped(name)}."
    )


def _with(name: str) -> list[str]:
    """Shipped models whose name contains what is after the organisation, by letters and digits alone."""
    part = plain(name.rstrip("/").rpartition("/")[2])
    return [known for known in known_models() if len(part) >= LEAST_PART and part in plain(known)]


def _shipped(name: str) -> str:
    """All shipped models, or where there are many those with the name in theirs; if none has, the most similar ones."""
    known = known_models()
    if len(known) <= _MOST_NAMED:
        return ", ".join(known)
    near = _with(name)[:_MOST_NAMED] or difflib.get_close_matches(shortened(name), known, n=_MOST_NAMED, cutoff=0.0)
    return f"{', '.join(near)}, and {len(known) - len(near)} more under specbench/data/models"


@functools.lru_cache(maxsize=64)
def model_source(spec: ModelSpec) -> Mapping[str, Any] | None:
    """What a shipped config.json rests on (kind, rests_on, reconstructed); None for a folder of the user."""
    file = spec.folder / "source.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None


@functools.lru_cache(maxsize=64)
def _load(folder: Path, name: str, _changed: int) -> ModelSpec:
    config = quantization.with_separate_file(read_config(folder / "config.json", name), folder, name)
    names = config.texts("architectures")
    family = architecture(names[0], config.where)
    text = family.text(config)
    vision = config.section_or_none("vision_config")
    recipe, why_no_weights = _recipe(config)
    why_no_weights = family.tensors_unknown or why_no_weights
    return ModelSpec(
        name=name,
        folder=folder,
        architecture=names[0],
        layers=family.layers(config),
        context_len=_context_len(text),
        dtype=text.text_or("dtype", None)
        or config.text_or("dtype", None)
        or config.text_or("torch_dtype", "bfloat16")
        or "",
        ssm_dtype=text.text_or("mamba_ssm_dtype", None) if family.reads_state_dtype else None,
        multimodal=vision is not None,
        vision_layers=_first(vision, "num_hidden_layers", "vt_num_hidden_layers"),
        vision_hidden=_first(vision, "hidden_size", "vt_hidden_size"),
        quantization=quantization.method(config),
        quantization_names=quantization.names(config, recipe),
        checkpoint=headers.read(folder),
        fp8_kv_of=recipe.method if recipe is not None and recipe.fp8_kv_cache else None,
        why_no_weights=why_no_weights,
        block_size=family.block_size(config) if family.block_size is not None else None,
        trained_on_layers=config.integer("num_target_layers") if "num_target_layers" in config.data else None,
        config=config,
        family=family,
    )


def _first(section: HfConfig | None, *keys: str) -> int | None:
    """The first of some numbers that a section has."""
    found = next((key for key in keys if section is not None and key in section.data), None)
    return section.integer(found) if section is not None and found is not None else None


def _recipe(config: HfConfig) -> tuple[Recipe | None, str]:
    """How the checkpoint is quantized, or why that is not known: all else of the model is predicted all the same."""
    try:
        return quantization.recipe(config), ""
    except SpecError as error:
        return None, error.first_line


def _context_len(text: HfConfig) -> int:
    """SGLang's get_context_length: the positions of the config, times the factor of a stretched rotary embedding."""
    positions = text.integer("model_max_length" if "model_max_length" in text.data else "max_position_embeddings")
    scaling = text.section_or_none("rope_scaling")
    if scaling is None:
        return positions
    factor = scaling.number_or("factor", 1.0)
    if "original_max_position_embeddings" in scaling.data or scaling.text_or("rope_type", "") == "llama3":
        factor = 1.0
    return int(factor * positions)
