"""For all tests."""

import os

import pytest
from hypothesis import settings

# No test is about time: a machine that is busy is no failure.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def _quick_pytest():
    """Let pytests that tests start leave out plugins that they do not use: hypothesis alone takes a second to load."""
    names = ("hypothesispytest", "anyio", "platformdirs")
    os.environ["PYTEST_ADDOPTS"] = " ".join(f"-p no:{name}" for name in names)
