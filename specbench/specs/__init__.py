"""Models as values. In: a name or a folder. Out: `ModelSpec`.

A model is its published config.json (`data/models/<org>--<name>/`, or any folder with one); beside a shipped one lies
`source.json`, which says what it rests on.
"""

from __future__ import annotations

from .models import by_usual_name, known_models, load_model, model_source, named_by, shipped_folder
from .spec import ModelSpec

__all__ = [
    "ModelSpec",
    "by_usual_name",
    "known_models",
    "load_model",
    "model_source",
    "named_by",
    "shipped_folder",
]
