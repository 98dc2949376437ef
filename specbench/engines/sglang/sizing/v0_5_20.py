"""0.5.20: larger defaults for cards below 35 GiB; rings of Gated DeltaNet ride on requests."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_19

RULE = replace(v0_5_19.RULE, version="0.5.20", small_card_generous=True, rings="delta_nets_per_request")
