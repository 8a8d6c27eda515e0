"""The pytest plugin: matrix jobs as items, cards for tests, hangs ended from outside, outcomes remembered.

Loaded by every pytest where this package is installed, so it imports nothing until something of it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from matrix.host.gpus import Card

_MARKERS = (
    "cards(n): the test gets n cards of this host, leased while it runs, in CUDA_VISIBLE_DEVICES",
    "single_card: (matrix jobs) needs one card",
    "multi_card: (matrix jobs) needs several cards",
)
_HELD = pytest.StashKey["object"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; all are off by default."""
    group = parser.getgroup("matrix", "matrix jobs, cards, hangs, history")
    group.addoption(
        "--matrix",
        nargs="?",
        const="",
        default=None,
        metavar="SPEC",
        help="Run the jobs of a matrix as items: the nearest matrix.yaml, or --matrix=SPEC.",
    )
    group.addoption("--matrix-cards", metavar="N", help="Pretend so many cards (or MODEL:N), for hosts without.")
    group.addoption(
        "--matrix-limit",
        type=float,
        metavar="SECONDS",
        help="End a test that takes longer: its stacks are written first. Also ends what holds the GIL.",
    )
    group.addoption("--matrix-record", action="store_true", help="Keep outcomes and durations in the matrix history.")
    group.addoption("--matrix-must-run", action="store_true", help="Fail when no test ran: all skipped or deselected.")
    parser.addini("matrix_limit", "Seconds that a test may take (--matrix-limit).", default="")
    parser.addini("matrix_record", "Keep outcomes in the history (--matrix-record).", type="bool", default=False)
    parser.addini("matrix_must_run", "Fail when no test ran (--matrix-must-run).", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the parts that are asked for."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    register = config.pluginmanager.register
    works_here = not hasattr(config, "workerinput")  # xdist's workers report to the controller
    if config.getoption("matrix") is not None:
        from matrix.testing.jobs import Jobs  # noqa: PLC0415
        from matrix.testing.runner import Runner  # noqa: PLC0415

        register(Jobs(config), "matrix-jobs")
        if works_here:
            register(Runner(config), "matrix-runner")
    if limit := _limit(config):
        from matrix.testing.hangs import Hangs  # noqa: PLC0415

        register(Hangs(config, limit), "matrix-hangs")
    if works_here and (_asked(config, "matrix_record") or _asked(config, "matrix_must_run")):
        from matrix.testing.outcomes import Outcomes  # noqa: PLC0415

        record, must_run = _asked(config, "matrix_record"), _asked(config, "matrix_must_run")
        register(Outcomes(config, record=record, must_run=must_run), "matrix-outcomes")
    if (config.rootpath / ".matrix/quarantine.yaml").is_file():
        from matrix.testing.quarantined import Quarantined  # noqa: PLC0415

        register(Quarantined(config), "matrix-quarantine")


def _asked(config: pytest.Config, name: str) -> bool:
    return bool(config.getoption(name) or config.getini(name))


def _limit(config: pytest.Config) -> float:
    given = config.getoption("matrix_limit")
    text = str(given if given is not None else config.getini("matrix_limit") or "0")
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if limit < 0:
        raise pytest.UsageError(f"matrix_limit = {text}: write seconds, such as 300")
    return limit


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lease the cards of `@pytest.mark.cards(n)` before any fixture of the test is made."""
    wanted = _wanted(item)
    if wanted:
        _lease(item, wanted)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give the cards of a test back when its last fixture is gone."""
    try:
        return (yield)
    finally:
        held = item.stash.get(_HELD, None)
        if held is not None:
            left = held.release()  # type: ignore[attr-defined]
            del item.stash[_HELD]
            if left:
                item.warn(pytest.PytestWarning(f"processes {left} of the test do not end; its cards stay leased"))


@pytest.fixture
def cards(request: pytest.FixtureRequest) -> Callable[[int], Sequence[Card]]:
    """Lease cards: `cards(2)` waits for two, sets CUDA_VISIBLE_DEVICES, returns them; they go back after the test."""

    def take(n: int = 1) -> Sequence[Card]:
        return _lease(request.node, n)

    return take


def _wanted(item: pytest.Item) -> int:
    marker = item.get_closest_marker("cards")
    if marker is None or hasattr(item, "job"):
        return 0
    match marker.args:
        case (int(n),) if n > 0 and not marker.kwargs:
            return n
    where = f"{Path(item.location[0])}:{(item.location[1] or 0) + 1}"
    pytest.fail(f"{where}: write @pytest.mark.cards(2), with a number of cards", pytrace=False)


def _lease(item: pytest.Item, n: int) -> Sequence[Card]:
    from matrix.testing.cards import Held, lease  # noqa: PLC0415

    held = item.stash.get(_HELD, None)
    if held is None:
        held = lease(n, item.nodeid, pretended=item.config.getoption("matrix_cards"))
        item.stash[_HELD] = held
        item.user_properties.append(("cards", ",".join(c.uuid for c in held.cards)))
    assert isinstance(held, Held)
    if n > len(held.cards):
        pytest.fail(
            f"the test holds {len(held.cards)} cards and asks for {n}: lease all of them at once", pytrace=False
        )
    return held.cards[:n]
