"""The command line: thin. Parse, call, print."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

import typer
import typer.exceptions

from carso.cli.before_work import check_words
from carso.cli.certify_command import certify
from carso.cli.demo_command import demo
from carso.cli.doctor_command import doctor
from carso.cli.evaluate_command import evaluate
from carso.cli.export_command import export
from carso.cli.harden_command import harden
from carso.cli.import_command import import_
from carso.cli.layers_command import layers
from carso.cli.options import app
from carso.cli.play_command import play
from carso.cli.predict_command import predict
from carso.cli.report_command import report
from carso.cli.reproduce_command import reproduce
from carso.cli.scenarios_command import scenarios
from carso.cli.train_command import train
from carso.distributed.launchers import first_process
from carso.errors import CarsoError

for command in (
    demo,
    scenarios,
    layers,
    train,
    harden,
    predict,
    play,
    export,
    evaluate,
    certify,
    report,
    reproduce,
    doctor,
):
    app.command()(command)
app.command("import")(import_)  # a word that Python keeps for itself


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2, a lost process code 3."""
    # Else torch's data parallelism advises, in every process, against what it is asked to do
    # (see carso/distributed/launchers.py). It is no Python warning, and is read before the import.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    for stream in (sys.stdout, sys.stderr):  # None where it is closed
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may know less than Unicode
    try:
        check_words(sys.argv[1:])
        code = app(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except CarsoError as error:
        if worth_saying(error):
            say(str(error))
        sys.exit(error.code)
    except typer.exceptions.TyperException as error:  # a missing argument, an unknown option
        say(f"{error.format_message()} (see carso --help)")
        sys.exit(2)
    except BrokenPipeError:  # whoever read our output has seen enough, as `head` does
        forget_output()
        sys.exit(0)
    except OSError as error:  # such as a full disk behind standard output
        what = f" {error.filename}" if error.filename else ""
        say(f"cannot read or write{what}: {error.strerror or error}")
        forget_output()
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        stopped()
        sys.exit(130)
    if code == 130:  # typer's word for Ctrl-C
        stopped()
    sys.exit(code if isinstance(code, int) else 0)


def say(what: str) -> None:
    """A line on standard error; where that cannot be written either, the exit code has to do."""
    try:
        print(f"carso: {what}", file=sys.stderr, flush=True)
    except OSError:
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def forget_output() -> None:
    """Let Python not try again, at its end, to write what could not be written."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def worth_saying(error: CarsoError) -> bool:
    """Of many processes that make the same mistake the first one says so; what befalls one alone,
    it says itself."""
    return error.alone or isinstance(error.__context__, OSError) or first_process()


def stopped() -> None:
    """Say how to go on; of many processes the first one does."""
    if not first_process():
        return
    say("stopped; training, evaluation and certificates go on when the command is given again")
