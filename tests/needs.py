"""What a test needs and may be missing: loud skips, and failures where it must be there."""

import importlib
import os

import pytest


def framework(name):
    """The module `name` of the extra test-frameworks; the calling module is skipped without it.

    With BATCHADVISOR_REQUIRE_FRAMEWORKS in the environment (the gate sets it in an environment
    that has the extra) a missing framework is a failure.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = f"{name} is missing (pip install -e '.[test-frameworks]'): {error}"
        if os.environ.get("BATCHADVISOR_REQUIRE_FRAMEWORKS"):
            pytest.fail(reason)
        pytest.skip(reason, allow_module_level=True)
