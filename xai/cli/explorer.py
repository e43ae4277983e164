"""`xai app`: the explorer, in a browser."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xai.cli.common import DONE, app
from xai.display import err

if TYPE_CHECKING:
    from xai.app.settings import Settings

FIRST_PORT, PORTS = 8501, 50
LOCAL = "127.0.0.1"


@app.command("app")
def explorer(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN…", help="Folders made by `xai explain`, or by `xai annotate`.")
    ],
    auditor: Annotated[
        str, typer.Option(help="Verdicts are stored under this name; else each visitor types one.")
    ] = "",
    read_only: Annotated[bool, typer.Option("--read-only", help="Show verdicts and store none.")] = False,
    images: Annotated[
        list[Path] | None, typer.Option(help="Folder of the pictures, if they have moved; may be repeated.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Explain own memes with it: 'planted', a checkpoint folder, or a hub id.")
    ] = None,
    task: Annotated[str, typer.Option(help="With --model: the task that it is asked.")] = "ukrmeme",
    host: Annotated[str, typer.Option(help="Address to listen on; there is no login.")] = LOCAL,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The first free one from 8501 on by default.")
    ] = None,
) -> None:
    """Go through the memes of runs in a browser: filter, look, compare, record verdicts; decide for a panel."""
    from xai.annotation.folder import is_panel
    from xai.app.settings import Settings

    settings = Settings(
        runs=tuple(path.resolve() for path in runs if not is_panel(path)),
        panels=tuple(path.resolve() for path in runs if is_panel(path)),
        images=tuple(path.resolve() for path in images or ()),
        auditor=auditor.strip(),
        read_only=read_only,
        model=model,
        task=task,
    )
    chosen = _port(host, port)
    settings.publish()
    _open(settings)
    _say(settings, host, chosen)
    _serve(host, chosen)
    raise typer.Exit(DONE)


def _open(settings: Settings) -> None:
    """Open the runs, and load the model, before anybody waits for a page; what cannot be opened ends the command."""
    from xai.app.session import services

    for folder in settings.images:
        if not folder.is_dir():
            raise ValueError(f"image folder {folder.name!r} does not exist; check the path")
    names = [path.name for path in (*settings.runs, *settings.panels)]
    err.print("opening " + ", ".join(names), markup=False, highlight=False)
    services()
    if settings.model is not None:
        from xai.app.views.explain import loaded

        err.print(f"loading {settings.model}", markup=False, highlight=False)
        loaded(settings.model)


def _say(settings: Settings, host: str, port: int) -> None:
    from xai.app.session import services

    def line(text: str, style: str | None = None) -> None:
        err.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    for opened in services().library.runs.values():
        folders = ", ".join(map(str, opened.pictures)) or "nowhere; name their folder with --images"
        line(f"{opened.name}: pictures from {folders}; verdicts beside the run in {opened.verdicts.name}")
    for panel in services().panels.values():
        folders = ", ".join(map(str, panel.pictures)) or "nowhere; name their folder with --images"
        line(f"{panel.name}: pictures from {folders}; decisions and votes in the panel's folder")
    line(f"the explorer is at http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C ends it)", "bold")
    if not _is_local(host):
        line(
            "anybody who reaches this address sees the runs and can store verdicts: there is no login. Put it behind "
            "something that has one, or leave out --host.",
            "red",
        )


def _serve(host: str, port: int) -> None:
    from streamlit.web import bootstrap

    import xai.app

    options = _options(host, port)
    bootstrap.load_config_options(options)
    script = Path(next(iter(xai.app.__path__))) / "main.py"
    bootstrap.run(str(script), False, [], options)


def _options(host: str, port: int) -> dict[str, Any]:
    """Of Streamlit, whatever its configuration files say."""
    from xai.app.settings import UPLOAD_MEGABYTES

    return {
        "server_address": host,
        "server_port": port,
        "server_headless": True,
        "server_enableXsrfProtection": True,
        "server_enableCORS": True,
        # Against pages elsewhere whose name comes to mean this machine.
        "server_allowedHosts": ["localhost", LOCAL, "::1"] if _is_local(host) else [],
        "server_maxUploadSize": UPLOAD_MEGABYTES,
        "server_enableStaticServing": False,
        "server_enableAgentApi": False,
        "server_fileWatcherType": "none",
        "browser_gatherUsageStats": False,
        "client_toolbarMode": "viewer",
        "client_showErrorDetails": "none",
        "client_showErrorLinks": False,
        "runner_magicEnabled": False,
        "logger_hideWelcomeMessage": True,
        "logger_level": "warning",
    }


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _port(host: str, asked: int | None) -> int:
    """The port that is asked for, or the first free one.

    Raises:
        ValueError: it is taken, or none is free; also where the address is not one of this machine.
    """
    candidates = range(FIRST_PORT, FIRST_PORT + PORTS) if asked is None else [asked]
    for port in candidates:
        if _is_free(host, port):
            return port
    which = f"port {asked} is not free" if asked else f"no port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} is free"
    raise ValueError(f"{which} on {host}; name another with --port, or an address of this machine with --host")


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As the server will: a port that was left a moment ago is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(os.name == "posix"))
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
