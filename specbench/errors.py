"""Every exception that specbench raises on purpose.

SpecbenchError
├── ConfigError      a params file, an override or a flag is wrong
├── SpecError        a model's config.json or the GPU table cannot be used
├── LogFormatError   the text is no engine log that we can read
├── RecordError      a record on disk is missing, unfinished or from a later schema
├── LaunchError      the engine's process could not be started at all
└── RunStoppedError       whoever started a run has stopped it: nothing of it is left

A server that is refused memory, crashes or times out is a *result* (a record with its status), never an exception.
A message says where, what came, what was expected and what to do, in two lines at most.
"""

from __future__ import annotations

import re

#: A value without a space this long is no word, path or name that anyone has to see whole.
_LONG = re.compile(r"\S{400,}")
_LONGEST_LINE = 2_000


class SpecbenchError(Exception):
    """Base class: bad input, or a bug of ours. The command line prints its text and exits with 2.

    Of values of thousands of characters its text has the beginning.
    """

    def __str__(self) -> str:
        text = _LONG.sub(lambda found: f"{found[0][:100]}…", super().__str__())
        return "\n".join(
            line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…" for line in text.split("\n")
        )

    @property
    def first_line(self) -> str:
        """Where, and what came; the second line, what to do, is left out."""
        return str(self).partition("\n")[0]

    @property
    def clause(self) -> str:
        """The first line as a part of another sentence: without its full stop."""
        return self.first_line.rstrip(".")


class ConfigError(SpecbenchError):
    """A params file, an override or a flag is wrong."""


class SpecError(SpecbenchError):
    """A model description or the GPU table cannot be used."""


class LogFormatError(SpecbenchError):
    """The text is no engine log that we can read."""


class RecordError(SpecbenchError):
    """A record on disk is missing, unfinished or from a later schema."""


class LaunchError(SpecbenchError):
    """The engine's process could not be started at all."""


class RunStoppedError(SpecbenchError):
    """Whoever started a run has stopped it: nothing of it is left."""
