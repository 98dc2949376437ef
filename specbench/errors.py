"""Every exception that specbench raises on purpose.

SpecbenchError
├── ConfigError      a params file, an override or a flag is wrong
├── SpecError        a model's config.json or the GPU table cannot be used
├── LogFormatError   the text is no engine log that we can read
├── RecordError      a record on disk is missing, unfinished or from a later schema
└── LaunchError      the engine's process could not be started at all

A server that is refused memory, crashes or times out is a *result* (a record with its status), never an exception.
A message says where, what came, what was expected and what to do, in two lines at most.
"""


class SpecbenchError(Exception):
    """Base class: bad input, or a bug of ours. The command line prints its text and exits with 2."""


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
