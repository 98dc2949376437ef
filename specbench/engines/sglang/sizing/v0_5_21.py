"""0.5.21: a pipeline stage counts its own layers with a window alone (`cell._counted`)."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_20

RULE = replace(v0_5_20.RULE, version="0.5.21")
