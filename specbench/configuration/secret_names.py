"""What must not be written into a record: variables and flags that hold a secret, told by their names.

In: names and values of environment variables and server flags. Out: the values, or a word instead; or a refusal. A
record, a notebook and a page are passed on; an engine inherits the environment that specbench was started in, so a
secret need not be in a params file. SGLang reads its keys from its command line alone: a server with a key is attached.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from .config import EngineSection

HIDDEN = "set, not recorded"

_WORDS = frozenset({"KEY", "KEYS", "APIKEY", "TOKEN", "AUTH"})
_PARTS = re.compile("SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|ACCESSKEY|APIKEY", re.IGNORECASE)
#: A number, a switch or a list of numbers keeps no secret: SGLANG_…_TOKEN=1.
_PLAIN = re.compile(r"(?:[\d.,\- ]{0,20}|true|false|yes|no|on|off)", re.IGNORECASE)
#: Words of an engine's own settings that are about tokens of text.
_OF_TEXT = re.compile("SIMULATE_ACC", re.IGNORECASE)

#: Flags of SGLang that take a key or a password, whatever its value looks like.
_KEY_FLAGS = ("api-key", "admin-api-key", "ssl-keyfile-password")
#: A shorter start of such a flag may be that of another one.
_SHORTEST_START = {"api-key": "api", "admin-api-key": "admin", "ssl-keyfile-password": "ssl-keyfile-"}
#: SGLang's flags that are about tokens of text and take words.
_TEXT_FLAGS = frozenset({"speculative-token-map"})


def is_secret(name: str, value: str) -> bool:
    """Whether a variable's value is better not written down."""
    if _PLAIN.fullmatch(value) or _OF_TEXT.search(name):
        return False
    return bool(_PARTS.search(name)) or not _WORDS.isdisjoint(name.upper().split("_"))


def shown(variables: Mapping[str, str]) -> dict[str, str]:
    """Names with their values, those of secrets replaced."""
    return {name: HIDDEN if is_secret(name, value) else value for name, value in variables.items()}


def is_secret_flag(name: str, value: Any) -> bool:
    """Whether a server flag's value is better not written down. `name` with or without dashes, shortened as argparse
    takes it; what is not passed at all is no secret.
    """
    if value is None or value is False:
        return False
    flag = name.strip().lower().lstrip("-").replace("_", "-").partition("=")[0]
    if any(key.startswith(flag) and flag.startswith(_SHORTEST_START[key]) for key in _KEY_FLAGS):
        return True
    values = value if isinstance(value, list) else [value]
    return flag not in _TEXT_FLAGS and any(is_secret(flag.replace("-", "_"), str(one)) for one in values)


def refuse_secret_variables(env: Mapping[str, str], where: str) -> None:
    """ConfigError (two lines) for a secret among variables of a server. `where`: of which they are."""
    for name, value in env.items():
        if is_secret(name, value):
            raise ConfigError(
                f"{where}.{name}: looks like a secret, and would be written into records and notebooks.\n"
                f"Leave it out and export {name} in the shell that starts specbench: the engine inherits it."
            )


def refuse_secrets(engine: EngineSection, where: str = "") -> None:
    """ConfigError (two lines) for a secret in `engine.env` or `engine.args`: it would be in every record, notebook and
    page.
    """
    lead = f"{where}{': ' if where else ''}engine"
    refuse_secret_variables(engine.env, f"{lead}.env")
    for name, value in engine.args.items():
        if is_secret_flag(name, value):
            raise ConfigError(
                f"{lead}.args.{name.partition('=')[0]}: looks like a secret, and would be written into records and "
                "notebooks.\nLeave it out (the server listens on 127.0.0.1), or start the server with it yourself: "
                "engine.attach, its key in SPECBENCH_API_KEY."
            )
