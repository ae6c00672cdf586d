"""`carso play`: a page to attack defences by hand."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from carso.cli.before_work import check_classifier, check_defence, check_files, check_machine
from carso.cli.options import DeviceOption, OwnOption, own_classifier, prepare
from carso.errors import CarsoError

LOCAL = ("127.0.0.1", "localhost")


def play(
    defences: Annotated[
        list[str] | None, typer.Argument(help="Runs to show besides the shipped defences.")
    ] = None,
    record: Annotated[
        list[Path] | None, typer.Option(help="A record to show; default: all in records/.")
    ] = None,
    classifier: OwnOption = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but localhost lets others in.")
    ] = LOCAL[0],
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8642,
    device: DeviceOption = "cpu",
    threads: Annotated[
        int, typer.Option(help="CPU threads; one image at a time gains little from more.")
    ] = 1,
) -> None:
    """Open a page on this machine: attack a defence by hand, and watch what happens."""
    for name in defences or ():
        check_defence(name)
    check_files("--record", record or ())
    check_classifier(classifier)
    check_machine(device, threads)
    listening = bound(host, port)
    try:
        import uvicorn

        from carso.play.server import application
    except ImportError as error:
        raise CarsoError(
            f"carso play needs {error.name}: pip install 'carso[play]' brings it"
        ) from None
    from carso.play.exhibition import exhibition
    from carso.report.write import read_any

    place = prepare(device, threads)
    shown = exhibition(defences or [], own_classifier(classifier), place)
    paths = record if record is not None else sorted(Path("records").glob("*.json"))
    app = application(
        shown, [read_any(path) for path in paths], hosts=LOCAL if host in LOCAL else ("*",)
    )
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning"))
    if host not in LOCAL:
        print(f"anyone who reaches {host} can use this page: there is no password")
    print(f"open http://{host}:{listening.getsockname()[1]} (Ctrl-C ends it)", flush=True)
    with suppress(KeyboardInterrupt), listening:
        server.run(sockets=[listening])


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there, or one line that says why none can."""
    try:
        return socket.create_server((host, port))
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None)
        why = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]
        advice = f"--host {LOCAL[0]} is this machine"
        if number in (errno.EADDRINUSE, errno.EACCES):
            advice = "--port 0 takes any that is free"
        raise CarsoError(f"cannot listen on {host}, port {port}: {why}; {advice}") from None
