"""The command line: thin. Parse, call, print."""

from __future__ import annotations

import sys

import typer
import typer.exceptions

from carso.commands.measuring import evaluate, report
from carso.commands.options import app
from carso.commands.training import harden, scenarios, train
from carso.commands.using import demo, doctor, predict
from carso.errors import CarsoError

for command in (demo, scenarios, train, harden, predict, evaluate, report, doctor):
    app.command()(command)


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except CarsoError as error:
        print(f"carso: {error}", file=sys.stderr)
        sys.exit(2)
    except typer.exceptions.TyperException as error:  # a missing argument, an unknown option
        print(f"carso: {error.format_message()} (see carso --help)", file=sys.stderr)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        stopped()
        sys.exit(130)
    if code == 130:  # typer's word for Ctrl-C
        stopped()
    sys.exit(code if isinstance(code, int) else 0)


def stopped() -> None:
    """Say how to go on."""
    again = "a training or evaluation goes on when the command is given again"
    print(f"carso: stopped; {again}", file=sys.stderr)


if __name__ == "__main__":
    main()
