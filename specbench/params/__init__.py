"""Params files: YAML -> RunConfig or Campaign, with messages that name file, key, value and what is allowed.

The non-obvious thing is YAML 1.1: `1e-3` is text, `on` is true, `0.5` as a version is a number, a date is a date, and a
key given twice is silently the last one. Each of these is caught and named (see `configuration.yamltext`).
"""

from __future__ import annotations

from .campaigns import Campaign, load_campaign
from .overlay import Overrides
from .runs import build_run, dump_run, load_run, load_sections

__all__ = ["Campaign", "Overrides", "build_run", "dump_run", "load_campaign", "load_run", "load_sections"]
