"""`matrix serve`: the page on this repository's runs."""

from __future__ import annotations

import contextlib

import click

from matrix.commands.history import store_option


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen here; 0.0.0.0 shows it to the network.")
@click.option("--port", type=click.IntRange(0, 65535), default=8321, show_default=True, help="0 takes a free one.")
@click.option("--allow-host", "names", multiple=True, help="A name by which browsers may call it; repeatable.")
@store_option
def command(host: str, port: int, names: tuple[str, ...], db: str | None) -> None:
    """Serve the page: runs, cards over time, logs, losses, and what is remembered. It only reads.

    Example: matrix serve --port 8321
    """
    import socket  # noqa: PLC0415 -- keeps --help quick

    import uvicorn  # noqa: PLC0415

    from matrix.commands.history import history_url  # noqa: PLC0415
    from matrix.errors import ToolError  # noqa: PLC0415
    from matrix.history.store import StoreAwayError, open_for_reading  # noqa: PLC0415
    from matrix.page.app import make_app  # noqa: PLC0415
    from matrix.page.data import Data  # noqa: PLC0415
    from matrix.run.folder import repository_root  # noqa: PLC0415

    url = history_url(db)
    with contextlib.suppress(StoreAwayError):  # told on the page; an address that is none is told here
        store = open_for_reading(url)
        if store is not None:
            store.close()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as e:
        raise ToolError(f"cannot listen on {host}:{port}: {e.strerror}", "choose another: --port 0") from None
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"http://{shown}:{listening.getsockname()[1]}/", err=True)
    app = make_app(Data(repository_root(), url), ["localhost", "127.0.0.1", "[::1]", shown, *names])
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])
