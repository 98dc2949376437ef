"""What must not be written into a record: variables that hold a secret, told by their names.

In: names and values of environment variables. Out: the values, or a word instead. A record, a notebook and a page are
passed on; an engine inherits the environment that specbench was started in, so a secret need not be in a params file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import ConfigError

HIDDEN = "set, not recorded"

_WORDS = frozenset({"KEY", "KEYS", "APIKEY", "TOKEN", "AUTH"})
_PARTS = re.compile("SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|ACCESSKEY|APIKEY", re.IGNORECASE)
#: A number, a switch or a list of numbers keeps no secret: SGLANG_…_TOKEN=1.
_PLAIN = re.compile(r"(?:[\d.,\- ]{0,20}|true|false|yes|no|on|off)", re.IGNORECASE)
#: Words of an engine's own settings that are about tokens of text.
_OF_TEXT = re.compile("SIMULATE_ACC", re.IGNORECASE)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable's value is better not written down."""
    if _PLAIN.fullmatch(value) or _OF_TEXT.search(name):
        return False
    return bool(_PARTS.search(name)) or not _WORDS.isdisjoint(name.upper().split("_"))


def shown(variables: Mapping[str, str]) -> dict[str, str]:
    """Names with their values, those of secrets replaced."""
    return {name: HIDDEN if is_secret(name, value) else value for name, value in variables.items()}


def refuse_secrets(env: Mapping[str, str], where: str = "") -> None:
    """ConfigError (two lines) for a secret in `engine.env`: it would be in every record, notebook and page."""
    for name, value in env.items():
        if is_secret(name, value):
            raise ConfigError(
                f"{where}{': ' if where else ''}engine.env.{name}: looks like a secret, and would be written into "
                "records and notebooks.\n"
                f"Leave it out and export {name} in the shell that starts specbench: the engine inherits it."
            )
