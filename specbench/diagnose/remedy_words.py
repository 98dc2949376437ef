"""A change as somebody makes it who starts a server by hand.

In: a remedy. Out: its flags, the variables beside them, a flag that is left out.
"""

from __future__ import annotations

from ..engines.sglang.flags import FLAGS
from .finding import Remedy

_VARIABLE = "engine.env."


def environment(remedy: Remedy) -> str:
    """'SGLANG_ENABLE_SPEC_V2=1': variables that are set beside the flags; "": none."""
    names = {key: key.removeprefix(_VARIABLE) for key in remedy.set if key.startswith(_VARIABLE)}
    return " ".join(f"{name}={remedy.set[key]}" for key, name in names.items())


def dropped_flags(remedy: Remedy) -> str:
    """'--max-total-tokens', of a change that is nothing but to leave it out; "": it is more than that."""
    if any(value is not None for value in remedy.set.values()):
        return ""
    return " ".join(flag for key in remedy.set if (flag := FLAGS.get(key)) is not None)


def on_server(remedy: Remedy) -> str:
    """The change as somebody makes it who has no params file: 'NAME=1 --flag 2', 'NAME=1 in the server's environment',
    'without --flag'; "": it is no change of the server's command line (another GPU).
    """
    variables, dropped = environment(remedy), dropped_flags(remedy)
    if remedy.flags:
        return f"{variables} {remedy.flags}".strip()
    if variables:
        return f"{variables} in the server's environment"
    return f"without {dropped}" if dropped else ""
