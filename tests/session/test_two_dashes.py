"""A `--` between SCRIPT and its arguments."""

import pytest
from batchadvisor.cli.run import run
from batchadvisor.features.estimate.command import estimate


@pytest.mark.parametrize("command", [run, estimate])
@pytest.mark.parametrize(
    ("typed", "arguments"),
    [
        (["x.py", "--a"], ("--a",)),
        (["x.py", "--", "--a"], ("--a",)),
        (["--", "x.py", "--a"], ("--a",)),
        (["--", "x.py", "--", "--a"], ("--", "--a")),  # the second is the script's
        (["x.py", "--", "--", "--a"], ("--", "--a")),
        (["x.py", "--a", "--", "b"], ("--a", "--", "b")),
        (["x.py", "--"], ()),
    ],
)
def test_one_is_ours(command, typed, arguments):
    with command.make_context(command.name, list(typed)) as context:
        assert context.params["script"] == "x.py"
        assert context.params["arguments"] == arguments
