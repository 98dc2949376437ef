"""A server that somebody else started, as if it were ours: asked, loaded with requests, and left alone.

In: `engine.attach` (its URL), `engine.attach_log` (its log file, when it lies here) and the key in the environment.
Out: an `Attached`, with what /server_info says. No process is started or ended; the cache is flushed before each
measured step as of a server of our own. LaunchError (two lines) when it cannot be reached, is no SGLang, or wants
another key. The key is in the headers of requests and nowhere else: no message, no record.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from ..configuration.config import RunConfig
from ..engines.sglang.addresses import HEALTH, SERVER_INFO
from ..errors import ConfigError, LaunchError
from ..records import foreign_json
from ..records.redaction import SHORTEST, Redaction
from ..replay.itself import Played, played
from . import fetch, time_limit
from .attached_log import AttachedLog
from .ending import Ending, classify

_TIMEOUT_S = 20.0
_POLL_S = 1.0
_SENDABLE = re.compile(r"[\x21-\x7e]+")


class Attached:
    """A server of somebody else, with the same face as `server.Server`."""

    ready = True
    timed_out = False
    alive = True
    ready_s: float | None = None
    exit_code: int | None = None
    gpu_use: Mapping[str, Any] | None = None
    left_behind: tuple[str, ...] = ()

    def __init__(self, config: RunConfig) -> None:
        asked = config.engine.attach
        assert asked is not None
        parts = urlsplit(asked)
        self.url = asked.rstrip("/")
        self.host = parts.hostname or ""
        self.tls = parts.scheme == "https"
        self.port = parts.port or (443 if self.tls else 80)
        self.argv: tuple[str, ...] = ()  # not known: somebody else wrote it
        self.added_env: Mapping[str, str] = {}
        self.answering = True
        self.proven = False  # as of `server.Server`
        self.gpu_memory = "not compared: the attached server was left running"
        self.notes: list[str] = []
        self.started_unix_s = time.time()
        self.info: Mapping[str, Any] = {}
        self._prefix = parts.path.rstrip("/")
        self._key_name = config.engine.api_key_env
        key = _key(self._key_name)
        self.headers: dict[str, str] = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.redaction = Redaction(key)
        if self.redaction.is_short:
            self.notes.append(
                f"the key in {self._key_name} has fewer than {SHORTEST} characters: where the attached server repeats "
                "it within a longer text it stays there"
            )
        if self.redaction.holds(config.to_sections()):
            raise ConfigError(
                f"engine.api_key_env: the key in {self._key_name} is in the params too, which the record keeps.\n"
                "Take it out of them (an address, a path or a name has it), or use another key."
            )
        self.log_path = Path()  # where the record's log goes: see `attached`
        self._log = None if config.engine.attach_log is None else AttachedLog(config.engine.attach_log)

    @property
    def version(self) -> str | None:
        """As it says itself."""
        told = self.info.get("version")
        return told if isinstance(told, str) else None

    @property
    def played(self) -> Played | None:
        """The record that it plays; None: an engine."""
        return played(self.info)

    @property
    def not_sampled(self) -> str | None:
        """Why the GPUs of this machine say nothing of it; None: they are its own."""
        return None if self.is_local else "not sampled: the attached server runs on another machine"

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine, as far as its address tells: the GPUs of this machine are then its own."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def connect(
        self, timeout_s: float, tick: Callable[[float], None] | None = None, until: float | None = None
    ) -> None:
        """Until it is healthy, with what it says of itself. LaunchError: it is not there, or not what it should be.

        `until`: the deadline of the campaign, which ends the waiting too (see `time_limit`).
        """
        began = time.monotonic()
        while (got := self.get(HEALTH)).status != 200:
            waited_s = time.monotonic() - began
            if got.status != 503 or waited_s >= timeout_s:  # 503: it is there, and still starts
                self._refuse(HEALTH, got)
            time_limit.check(until)
            if tick:
                tick(waited_s)
            time.sleep(min(_POLL_S, time_limit.left_s(until)))
        self.info = self._server_info()
        self.started_unix_s = time.time()

    def get(self, path: str, timeout_s: float = _TIMEOUT_S) -> fetch.Fetched:
        """A GET with an end: see `fetch`. Keys are taken out of what comes."""
        got = fetch.get(
            self.host, self.port, f"{self._prefix}{path}", timeout_s=timeout_s, tls=self.tls, headers=self.headers
        )
        return got if got.body is None else fetch.Fetched(status=got.status, body=self._without_key(got.body))

    def _without_key(self, body: bytes) -> bytes:
        try:
            told = self.redaction.values(foreign_json.parse(body))
        except ValueError:
            return self.redaction.data(body)
        return json.dumps(told, ensure_ascii=False).encode()

    def settle(self) -> None:
        """After the workload: is it still there; and its log, when it is known, into the record."""
        self.answering = self.proven or self.get(HEALTH).status == 200
        if self._log is None:
            self.log_path.touch()
            self.notes.append(
                "the attached server's log is not known (engine.attach_log): what only it says is not logged"
            )
        else:
            self._log.write(self.log_path, self.redaction, self.notes)

    def ending(self, timeout_s: float, *, exit_code_known: bool = True) -> Ending:
        """How it stands after the workload; it goes on running. The arguments are `server.Server`'s: none matters."""
        if self.answering:
            reason = "attached: it answered until the end of the workload, and was left running"
            return Ending(status="served", exit_code=None, reason=reason)
        from ..engines.sglang.logs import read
        from ..reading.lost_rank import lost_rank

        log = read(self.log_path)
        return classify(
            ready=True,
            ended_by_itself=False,
            exit_code=None,
            failures=log.failures,
            answering=False,
            lost=lost_rank(log),
        )

    def _server_info(self) -> Mapping[str, Any]:
        path, got = SERVER_INFO[0], self.get(SERVER_INFO[0])
        if got.status == 404:
            path, got = SERVER_INFO[1], self.get(SERVER_INFO[1])
        try:
            told = None if got.body is None else foreign_json.parse(got.body)
        except ValueError as error:
            self._refuse(path, got, str(error))
        if not isinstance(told, dict) or not ("version" in told or "internal_states" in told):
            self._refuse(path, got)
        return told

    def _refuse(self, path: str, got: fetch.Fetched, why: str = "") -> NoReturn:
        where = f"engine.attach: {self.url}"
        if got.status in (401, 403):
            given = "refuses the one" if self.headers else "none is"
            raise LaunchError(
                f"{where} asks for a key, and {given} in {self._key_name} (HTTP {got.status}).\n"
                f"Set {self._key_name} to the server's key (engine.api_key_env names another variable)."
            )
        if got.status is None:
            raise LaunchError(
                f"{where}: no server answers there: {got.problem or got.why or 'no connection'}.\n{_what_to_do(got)}"
            )
        if got.status == 503:
            raise LaunchError(
                f"{where} still starts: {path} says HTTP 503 until the end of engine.ready_timeout_s.\n"
                "Wait until it is ready, or give it more time (engine.ready_timeout_s)."
            )
        if 300 <= got.status < 400:
            raise LaunchError(
                f"{where} answers {path} with HTTP {got.status}, a redirect, which is not followed.\n"
                "Name the address that it sends to: what is measured is the server that answers."
            )
        told = got.problem or f"no server information of SGLang{f' ({why})' if why else ''}"
        raise LaunchError(
            f"{where} answers {path} with {f'HTTP {got.status}' if got.status != 200 else told}, which a ready SGLang "
            "does not.\nCheck the address; expected the address of an SGLang server, e.g. http://127.0.0.1:30000."
        )


@contextlib.contextmanager
def attached(server: Attached, log_path: Path) -> Iterator[Attached]:
    """For the time of a workload. However it ends, the server goes on running."""
    server.log_path = log_path
    yield server
    server.settle()


def _key(name: str) -> str | None:
    key = os.environ.get(name)
    if key is not None and not _SENDABLE.fullmatch(key):
        raise ConfigError(
            f"engine.api_key_env: what is in {name} cannot be a key.\n"
            "Expected printable ASCII without spaces; unset the variable when the server asks for none."
        )
    return key


def _what_to_do(got: fetch.Fetched) -> str:
    if got.why is not None and "certificate" in got.why:
        return "Name the authority that signed its certificate in SSL_CERT_FILE, or use http on a trusted network."
    return "Start it first and wait until it is ready, or leave engine.attach out to have one started."
