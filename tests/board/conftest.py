"""One TensorBoard for all tests of the routes: it takes seconds to start."""

import pytest

from . import zoo


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    return zoo.entry_points(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="session")
def logdir(tmp_path_factory):
    return zoo.build(tmp_path_factory.mktemp("logdir"))


@pytest.fixture(scope="session")
def server(logdir, site, tmp_path_factory):
    running = zoo.Server(logdir, tmp_path_factory.mktemp("server"), site)
    yield running
    running.close()
