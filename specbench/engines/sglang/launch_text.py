"""A launch command in text: `python -m sglang.launch_server …`, `sglang serve …`, alone or inside `docker run …`.

In: text that somebody pasted or typed. Out: ServerArgs fields with their values, and SGLang's environment variables;
None: there is no such command. The text is taken apart as a shell would (quotes, backslashes at line ends), and never
given to one: `$VARIABLES` stay as they are written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .command_line import flags_of, typed_value, verbatim
from .flags import FLAGS, key_of_flag, whole_flag
from .given import arg_name

_MODULES = ("sglang.launch_server", "sglang.launch_server.py")
#: How a command begins, wherever it stands in a line. Cheap to look for before anything is taken apart.
_COMMAND = re.compile(r"sglang[./]launch_server|\bsglang\s{1,8}serve\b")
_MOST_COMMANDS = 64
_MOST_LINES, _MOST_CHARACTERS = 200, 1 << 14
#: A line that goes on: a backslash, or the next one begins with a flag (YAML's folded text, a wrapped paste).
_GOES_ON = re.compile(r"\\[ \t]{0,80}\Z")
_FLAG_LINE = re.compile(r"[ \t]{0,200}--?[a-zA-Z]")
_ENDS = re.compile(r"(?:[0-9]?>{1,2}|&>|<|\||;|&)")
_PLAIN = re.compile(r"[\w./:=+-]{1,4096}")  # before a semicolon: no JSON, no list
_VARIABLE = re.compile(r"(SGLANG_[A-Z0-9_]{1,100})=(.{0,1000})", re.DOTALL)
_FIELDS = {
    "memory.mamba_radix_cache_strategy": "mamba_radix_cache_strategy",
    "memory.cuda_graph_max_bs": "cuda_graph_max_bs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch command, understood."""

    arguments: Mapping[str, Any]  # ServerArgs field -> value, as given; what is left out is not here
    env: Mapping[str, str] = field(default_factory=dict)  # SGLANG_… variables before the command, or of docker's -e
    line: int | None = None  # of the text, 1-based


def launch_in(text: str) -> Launch | None:
    """The last launch command of a text that names a model or has a flag: earlier ones may be tries. A value of
    another type than the flag's stays text.
    """
    found = None
    for count, match in enumerate(_COMMAND.finditer(text)):
        if count == _MOST_COMMANDS:
            break
        begin = _begin(text, match.start())
        launch = _understood(_words(_whole(text, begin)))
        if launch is not None:
            found = Launch(arguments=launch.arguments, env=launch.env, line=text.count("\n", 0, begin) + 1)
    return found


def _begin(text: str, at: int) -> int:
    """Where the command's first line begins: `docker run … \\` stands some lines before the module's name."""
    begin = text.rfind("\n", 0, at) + 1
    for _ in range(_MOST_LINES):
        before = text.rfind("\n", 0, begin - 1) + 1 if begin else 0
        if begin == 0 or _GOES_ON.search(text, before, begin - 1) is None:
            break
        begin = before
    return begin


def _whole(text: str, begin: int) -> str:
    """The command with the lines that it goes on over."""
    lines: list[str] = []
    for line in text[begin : begin + _MOST_CHARACTERS].split("\n")[:_MOST_LINES]:
        goes_on = bool(lines) and (_GOES_ON.search(lines[-1]) is not None or _FLAG_LINE.match(line) is not None)
        if lines and not goes_on:
            break
        lines.append(line)
    return "\n".join(_GOES_ON.sub("", line) for line in lines)


def _words(command: str) -> list[str]:
    """As a shell parts them; where a quote is not closed, at spaces."""
    try:
        return shlex.split(command, comments=False)
    except ValueError:
        return command.split()


def _understood(words: Sequence[str]) -> Launch | None:
    """None for a mention (`sglang serve --model-path <model>`), or for a command without anything to tell."""
    start = next((at + 1 for at, word in enumerate(words) if _is_command(words, at)), None)
    if start is None:
        return None
    if any(word.startswith("<") and word.endswith(">") for word in words[start:]):
        return None
    argv = list(_until_end(words[start:]))
    arguments = {name: value for name, value in _fields(argv) if value is not None}
    if argv and words[start - 1] == "serve" and not argv[0].startswith("-") and (arguments or "/" in argv[0]):
        arguments.setdefault("model_path", argv[0])
    if not arguments:
        return None
    env = {found[1]: found[2] for word in words[:start] if (found := _VARIABLE.fullmatch(word))}
    return Launch(arguments=arguments, env=env)


def _is_command(words: Sequence[str], at: int) -> bool:
    word = words[at]
    if word.endswith(_MODULES) or word.endswith("sglang/launch_server.py"):
        return True
    return word == "serve" and at > 0 and words[at - 1].rpartition("/")[2] == "sglang"


def _until_end(words: Sequence[str]) -> Iterator[str]:
    """Up to what a shell would do next: a redirection, a pipe, another command."""
    for word in words:
        if _ENDS.match(word):
            return
        plain, closed, _ = word.partition(";")
        if closed and _PLAIN.fullmatch(plain):
            yield plain
            return
        yield word


def _fields(argv: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """ServerArgs fields. Of a number that is none the text stays."""
    for flag, values in flags_of(argv).items():
        key = key_of_flag(flag)
        if flag in ("model-path", "model"):
            yield "model_path", values[0] if values else None
        elif key is not None:
            yield _FIELDS.get(key) or arg_name(FLAGS[key] or key), _typed(flag, key, values)
        else:
            yield arg_name(whole_flag(flag)), verbatim(values)


def _typed(flag: str, key: str, values: list[str]) -> Any:
    try:
        return typed_value(flag, key, values)
    except ValueError:
        return verbatim(values)
