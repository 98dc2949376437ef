"""The command line. Command modules import only typer at the top: `specbench --help` answers at once."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from typing import Any

import typer

from ..errors import SpecbenchError
from .diagnose import diagnose
from .doctor import doctor
from .import_ import import_records
from .notebooks import notebooks
from .offsets import offsets
from .plan import plan
from .predict import predict
from .report import report
from .run import run

app = typer.Typer(
    name="specbench",
    help=(
        "Predict, run and reconcile the memory pools of hybrid models served with speculative decoding.\n\n"
        "First steps: 'specbench run params/demo.yaml' plays recorded SGLang runs and writes a report (no GPU needed); "
        "'specbench diagnose server.log' explains a server that does not start or serves too few requests."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("predict", short_help="Pools and limits of a configuration, before any start.")(predict)
app.command("plan", short_help="What to set so that a server does what you wish.")(plan)
app.command("run", short_help="Run a params file (one run or a campaign) and write the report.")(run)
app.command("diagnose", short_help="Explain a record or a server log, and what to change.")(diagnose)
app.command("report", short_help="Rebuild the pages of a folder from its records.")(report)
app.command("notebooks", short_help="Refresh the notebooks, or check them.")(notebooks)
app.command("import", short_help="Make records to keep, of recordings or of runs from elsewhere.")(import_records)
app.command("offsets", short_help="Measured offsets of records as rows of the offsets table.")(offsets)
app.command("doctor", short_help="What this machine can do.")(doctor)


#: Of click, or of the copy of it that newer releases of typer bring.
_UsageError: Any = typer.BadParameter.__mro__[1]
#: Before what was expected.
_USAGE = re.compile(r"\AInvalid value for '?(?P<name>[^':]{1,80})'?: (?:Value error, )?")


def _version(asked: bool) -> None:
    if asked:
        from .. import __version__

        typer.echo(f"specbench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    """The options of specbench itself."""


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 the answer is no (see each command), 2 bad input, 130 interrupted."""
    _have_streams()
    _have_width()
    _print_what_the_terminal_can()
    try:
        _app()
    except SpecbenchError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        _drop_output()
        sys.exit(0)
    except OSError as error:  # a full disk, most of all; it may be the output itself that is lost
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        where = error.filename or ("output" if full else "a file")
        typer.echo(f"error: {where}: {error.strerror or error}.", err=True)
        typer.echo("Make room, or write elsewhere." if full else "Expected one that can be used so.", err=True)
        _drop_output()
        sys.exit(2)


def _have_streams() -> None:
    """A stream that the caller has closed (`>&-`, a service) is an empty one; no file takes its place."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (for good)


def _have_width() -> None:
    """A width that no terminal has (0 of a shell without one, a word) is none: what prints would print nothing."""
    columns = os.environ.get("COLUMNS", "")
    if columns and not (re.fullmatch(r"[0-9]{1,4}", columns) and int(columns)):
        del os.environ["COLUMNS"]


def _print_what_the_terminal_can() -> None:
    """A terminal or a pipe without Unicode gets ? for ×, → and the like, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _app() -> None:
    """The command. A reader (head, less) that has gone is no error, though click and rich end with 1 of it."""
    try:
        sys.exit(_command())
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):
            raise stop.__context__ from None
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # the command had ended: its exit code stands
            _drop_output()
        raise


def _command() -> int:
    """Runs it and gives its exit code. What is wrong with its options is said in two lines, as everything is."""
    try:
        code = app(prog_name="specbench", standalone_mode=False)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # no command at all: the help is the answer
            error.show()
        else:
            path = "specbench" if error.ctx is None else error.ctx.command_path
            said = _USAGE.sub(r"\g<name>: ", " ".join(error.format_message().split()))
            typer.echo(f"error: {said}", err=True)
            typer.echo(f"'{path} -h' lists what it takes.", err=True)
        return 2
    except typer.Abort:
        typer.echo("Aborted!", err=True)
        return 1
    return code if isinstance(code, int) else 0


def _drop_output() -> None:
    """Python would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
