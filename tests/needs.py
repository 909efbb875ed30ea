"""What a test needs and may be missing: loud skips, and failures where it must be there."""

import contextlib
import importlib
import importlib.util
import os
import shutil
from pathlib import Path

import pytest

PROGRAMS = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
"""Where programs are looked for; daemons are in folders that a user's path may lack."""
BENCH = Path(__file__).parents[1] / "bench"


def framework(name):
    """The module `name` of the extra test-frameworks; the calling module is skipped without it.

    With BATCHADVISOR_REQUIRE_FRAMEWORKS in the environment (the gate sets it in an environment
    that has the extra) a missing framework is a failure.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        _is_missing(name, error)


def framework_of_scripts(name):
    """As `framework`, for a module that scripts import alone: it is found, and not imported here.

    TensorFlow takes seconds, and stays.
    """
    if importlib.util.find_spec(name) is None:
        _is_missing(name, "it is not installed")


def _is_missing(name, why):
    reason = f"{name} is missing (pip install -e '.[test-frameworks]'): {why}"
    if os.environ.get("BATCHADVISOR_REQUIRE_FRAMEWORKS"):
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


def programs(*names, package):
    """Skips the calling module where one of these programs is missing; under CI=true it fails."""
    missing = [name for name in names if shutil.which(name, path=PROGRAMS) is None]
    if not missing:
        return
    reason = f"no {', '.join(missing)} (apt install {package})"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


def bench(name):
    """The module `name` of the folder bench, which is no package."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def chromium(*options):
    """Debian's Chromium under Playwright; a test without it is skipped, or fails as above."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        reason = "no chromium (apt install chromium)"
        if os.environ.get("BATCHADVISOR_REQUIRE_FRAMEWORKS"):
            pytest.fail(reason)
        pytest.skip(reason)
    with framework("playwright.sync_api").sync_playwright() as playwright:
        command = ["--no-sandbox", *options]
        browser = playwright.chromium.launch(executable_path=program, args=command)
        yield browser
        browser.close()


@contextlib.contextmanager
def window(*options):
    """A window of Chromium that has no network and stays open.

    Each takes a second of CPU; a tab of one that is there takes a quarter of it.
    """
    with chromium(*options) as browser:
        context = browser.new_context(offline=True)
        context.new_page()
        yield context
