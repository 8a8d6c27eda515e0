import io
import itertools

from rich.console import Console

from matrix.report.progress import left, tracked


def shown(seconds_each, total, *, tty=False):
    out = io.StringIO()
    clock = itertools.count(0.0, seconds_each)
    console = Console(file=out, force_terminal=tty, width=100)
    items = list(tracked(range(total), total, "import", console=console, now=lambda: next(clock)))
    assert items == list(range(total))
    return out.getvalue()


def test_what_is_over_at_once_says_nothing():
    assert shown(0.001, 100) == ""


def test_what_takes_long_says_now_and_then_how_far_it_is_and_how_long_the_rest_takes():
    lines = shown(1.0, 40).splitlines()
    assert lines[0] == "import: 1 of 40, about 1m18s left"
    assert lines[1] == "import: 11 of 40, about 32s left"
    assert len(lines) == 4


def test_on_a_terminal_a_bar_is_drawn_and_taken_away(monkeypatch):
    for name in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "import" in shown(0.001, 3, tty=True)


def test_the_rest_is_only_guessed_between_beginning_and_end():
    assert (left(0, 5, 9.0), left(5, 5, 9.0), left(1, 5, 9.0)) == ("", "", "about 36s left")
