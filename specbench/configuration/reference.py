"""The reference of all params keys, as Markdown, from the configuration's own types: it cannot go out of date."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from .config import RunConfig

_MODEL = (
    "a shipped model, or a folder with a config.json. Where the folder has the safetensors files, too, weights are "
    "predicted from the sizes in their headers"
)

_HEAD = """\
# Keys of a params file

A run file has these sections; keys carry SGLang's own flag names. *not given* means that the flag is left out and the
engine decides. `--set SECTION.KEY=VALUE` overrides any key. This page is made from the types (`make docs`).

A campaign file has other keys:

```yaml
campaign: requests-by-ratio        # name of the folder under runs/
about: one sentence for the page   # optional
base: story/tp1-4.yaml             # a run file beside this one, or the sections themselves
set: {parallel.tp_size: 2}         # laid over every point's base, before what the point says
matrix:                            # the product of all lists
  memory.max_running_requests: [4, 8]
  memory.mamba_full_memory_ratio: [0.5, 0.9]
points:                            # further points; `params` replaces the base, `name` the name
  - {name: no-radix, memory.disable_radix_cache: true, memory.mamba_radix_cache_strategy: auto}
  - {params: recordings/nospec_r4.yaml}
```

A campaign that differs from another by a few keys of every point names it; its `set` is laid over the other's:

```yaml
campaign: h200-tp8
like: h200-tp4.yaml                # a campaign file beside this one: its base, set, matrix and points
set: {parallel.tp_size: 8, gpu.count: 8}
```

Where a machine has its engines and models is no part of a params file. A machine file tells it
(`specbench run PARAMS --machine FILE`): it fills `engine.python`, `engine.env` and `engine.model_paths` where the
params file states none, the engine by its version, the models by their names. Values are taken as they are.

```yaml
engines:
  "0.5.12": {python: /opt/sglang-0.5.12/bin/python}
  "0.5.16": {python: /opt/sglang-0.5.16/bin/python, env: {CUDA_HOME: /usr/local/cuda-13.0}}
models:
  Qwen/Qwen3.6-27B: /data/models/Qwen3.6-27B       # a folder: config.json, tokenizer, processor, weights
  z-lab/Qwen3.6-27B-DFlash: /data/models/Qwen3.6-27B-DFlash      # the draft: config.json, weights
```

With `engine.args.load-format: dummy` weights are random and none are read: the folders need no weights (*.safetensors).
"""


def markdown() -> str:
    """The whole page."""
    parts = [_HEAD]
    for name, field in RunConfig.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            parts.append(f"\n## {name}\n\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n")
            parts += [_row(key, inner) for key, inner in section.model_fields.items()]
            for key, inner in section.model_fields.items():
                parts += _nested(f"{name}.{key}", inner)
        else:
            meaning = {"name": "also the run's folder", "model": _MODEL}[name]
            parts.append(f"\n## {name}\n\nText, required: {meaning}.\n")
    return "".join(parts)


def _nested(key: str, field: FieldInfo) -> list[str]:
    """The table of a mapping with keys of its own; nothing for any other field."""
    return [
        f"\n### {key}\n\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n"
        + "".join(_row(inner, of) for inner, of in model.model_fields.items())
        for model in get_args(field.annotation)
        if isinstance(model, type) and issubclass(model, BaseModel)
    ]


def _row(key: str, field: FieldInfo) -> str:
    default = "**required**" if field.is_required() else _value(field.get_default(call_default_factory=True))
    meaning = (field.description or "").replace("|", "\\|")
    return f"| `{key}` | {_type(field.annotation)} | {default} | {meaning} |\n"


def _value(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f"`{value}`" if value != {} else "empty"


def _type(annotation: Any) -> str:
    """'whole number', 'text', 'one of a, b', 'list of whole numbers', alternatives joined by 'or'."""
    simple = {int: "whole number", float: "number", str: "text", bool: "true or false", type(None): ""}
    if annotation in simple:
        return simple[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return _type(arguments[0])
    if origin is tuple:
        return f"list of {_type(arguments[0])}s"
    if origin is dict:
        return "mapping"
    if all(isinstance(argument, str) for argument in arguments):
        words = ", ".join(f"`{argument}`" for argument in arguments)
        return f"one of {words}" if len(arguments) > 1 else words
    return " or ".join(text for text in map(_type, arguments) if text)
