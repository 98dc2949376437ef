"""SGLang 0.5.23: the server's arguments are printed as a dict (see server_args.py), all other lines as before."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {}

GONE: tuple[str, ...] = ()
