"""SGLang 0.5.19: all lines as before."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {}

GONE: tuple[str, ...] = ()
