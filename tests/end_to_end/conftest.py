"""Runs that several tests look at, each made once, when it is first asked for."""

import functools

import pytest

from . import driver, styles
from .ahead import Ahead, names_asked_for


@pytest.fixture(scope="session")
def styled(request, tmp_path_factory):
    """The run of a script of `styles.STYLES`, by its name."""

    def start(name):
        style = styles.STYLES[name]
        folder = tmp_path_factory.mktemp(name)
        text = (driver.SCRIPTS / f"{name}.py").read_text()
        for before, after in style.edits:
            assert before in text
            text = text.replace(before, after)
        (folder / f"{name}.py").write_text(text)
        options = ("--json", "-q", "-o", "out", *style.options)
        words = ("run", *options, f"{name}.py", *style.arguments)
        return functools.partial(driver.run_preloaded, *words, folder=folder)

    ahead = Ahead(names_asked_for(request.session, "name", styles.STYLES), start)
    yield ahead
    ahead.close()


@pytest.fixture(scope="session")
def memory_run(tmp_path_factory):
    """The largest size of memory_hungry.py below a limit."""
    folder = tmp_path_factory.mktemp("memory")
    options = ("--goal", "memory", "--memory-limit", "450MiB", "--memory-margin", "15%")
    options = (*options, "--budget", "60s")
    script = driver.SCRIPTS / "memory_hungry.py"
    return driver.run_preloaded(
        "run", "--json", "-q", "-o", "out", "--no-profile", *options, script, folder=folder
    )
