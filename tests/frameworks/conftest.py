"""One window of a browser for the tests of a file."""

import pytest

from .. import needs


@pytest.fixture(scope="module")
def window():
    with needs.window() as opened:
        yield opened
