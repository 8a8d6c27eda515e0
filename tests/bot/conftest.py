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
