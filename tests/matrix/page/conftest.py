"""One page for all tests of a process."""

import pytest

from tests.matrix.page.pages import serving


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("page")) as page:
        yield page
