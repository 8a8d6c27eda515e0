"""Fixtures of the bot's tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # rendering.py, fake_github.py


@pytest.fixture(scope="session")
def node():
    """Install what comes from npm, once."""
    from rendering import install_node

    install_node()


@pytest.fixture
def fake():
    """GitHub's double; the test fails if either side broke GitHub's API description."""
    from fake_github import FakeGitHub

    double = FakeGitHub().start()
    yield double
    double.stop()
    assert not double.violations


@pytest.fixture
def connect(fake):
    """Make clients of the double that do not wait."""
    from bot.github import Budget, GitHub, transport_retry

    made = []

    def client(**kw):
        retry = transport_retry(total=kw.pop("total", 3), max_wait=5, secondary_wait=0)
        retry.backoff_factor = 0.01
        kw.setdefault("budget", Budget(500))
        made.append(GitHub(fake.full_name, "t" * 40, base_url=fake.base, retry=retry, pace=0, **kw))
        return made[-1]

    yield client
    for c in made:
        c.close()
