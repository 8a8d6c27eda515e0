"""`bot serve`: the webhook server."""

from __future__ import annotations

import logging
import os
from collections.abc import MutableMapping
from pathlib import Path

import click
from github import Auth

from bot.feedback import keeper_for
from bot.github import Budget, ETags, GitHub
from bot.service import Bot
from bot.worker import MakeBot
from matrix.errors import UsageError

API = "https://api.github.com"


def _need(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise UsageError(f"{name} is not set", "secrets come from the environment only; see the page on the bot")
    return value


def app_login() -> Auth.AppAuth | None:
    """Return the App's login, tried once on this host; None where the bot has a token of its own.

    Raises:
        UsageError: the App's id or key is missing or none.

    """
    ident = os.environ.get("BOT_APP_ID", "")
    if not ident:
        return None
    # Many stores of secrets keep a text on one line.
    app = Auth.AppAuth(ident, _need("BOT_APP_KEY").replace("\\n", "\n"))
    try:
        app.create_jwt()
    except Exception:  # noqa: BLE001 - whatever the library says of a key must not be printed
        raise UsageError("BOT_APP_KEY is no private key", 'give the text of the file: "$(cat key.pem)"') from None
    return app


def bots(cache: MutableMapping[int, str], login: str, pace: float) -> MakeBot:
    """Make bots for repositories, by a token or as an App's installation."""
    # One client a repository, kept: the seconds between writes and the remembered answers hold over events.
    clients: dict[tuple[str, int | None], GitHub] = {}
    base_url = os.environ.get("GITHUB_API_URL", API)
    app = app_login()

    def auth(installation: int | None) -> Auth.Auth:
        if app:
            if installation is None:
                raise UsageError("the delivery names no installation of the App")
            return app.get_installation_auth(installation)  # asks for a token, and for a new one before it ends
        return Auth.Token(_need("GITHUB_TOKEN"))

    def make(repository: str, installation: int | None) -> Bot:
        key = (repository, installation)
        if key not in clients:
            clients[key] = GitHub(repository, auth(installation), base_url=base_url, pace=pace, etags=ETags())
        clients[key].budget = Budget(400)
        keeper = keeper_for(clients[key], os.environ)
        return Bot(clients[key], login, cache=cache, keeper=keeper, history=os.environ.get("MATRIX_HISTORY"))

    return make


@click.command(name="serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, help="Port to listen on.")
@click.option(
    "--queue",
    "queue_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default="bot-queue.db",
    show_default=True,
    help="SQLite file that keeps deliveries.",
)
@click.option("--pace", default=1.0, show_default=True, help="Seconds between writes to GitHub.")
@click.option("--listen", default=1800.0, show_default=True, help="Seconds between looks for votes on reports.")
def command(*, host: str, port: int, queue_path: Path, pace: float, listen: float) -> None:
    r"""Serve /webhook for a GitHub App or organisation hook, /healthz and /metrics.

    From the environment: BOT_WEBHOOK_SECRET, BOT_LOGIN, and GITHUB_TOKEN or BOT_APP_ID with BOT_APP_KEY;
    MATRIX_HISTORY for a database of results and feedback.

    \b
    Example: bot serve --host 0.0.0.0 --port 8080
    """
    import uvicorn  # noqa: PLC0415 - only the server needs it

    from bot.app import make_app  # noqa: PLC0415
    from bot.queue import SqliteQueue  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    secret, login = _need("BOT_WEBHOOK_SECRET"), _need("BOT_LOGIN")
    if not os.environ.get("BOT_APP_ID"):
        _need("GITHUB_TOKEN")
    queue = SqliteQueue(queue_path)
    app = make_app(queue, bots(queue.diagnoses(), login, pace), login, secret, listen=listen)
    uvicorn.run(app, host=host, port=port, log_level="warning", server_header=False)
