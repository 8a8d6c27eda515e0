import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("report_runs", Path(__file__).with_name("runs.py"))
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)


@pytest.fixture(scope="session")
def runs():
    """The builders of runs."""
    return _module
