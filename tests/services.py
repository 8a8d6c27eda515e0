"""Services that some tests need. `make test` starts them; else such a test is skipped and says what is missing."""

import os

import pytest


def need(variable: str) -> str:
    """Value that scripts/services.sh gave, or a skip; under `make test` its absence is a failure, not a skip."""
    value = os.environ.get(variable)
    if value:
        return value
    message = f"${variable} is not set: run `bash scripts/services.sh start && source .services/env`, or `make test`"
    if os.environ.get("MATRIX_TEST_SERVICES") == "required":
        pytest.fail(message)
    pytest.skip(message)
