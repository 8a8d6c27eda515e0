"""For all tests."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _quick_pytest():
    """Let pytests that tests start leave out plugins that they do not use: hypothesis alone takes a second to load."""
    names = ("hypothesispytest", "anyio", "platformdirs")
    os.environ["PYTEST_ADDOPTS"] = " ".join(f"-p no:{name}" for name in names)
