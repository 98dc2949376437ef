"""0.5.15: an EAGLE draft's KV counts beside sliding-window layers, too (`cell._charged_beside_windows`)."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_14

RULE = replace(v0_5_14.RULE, version="0.5.15")
