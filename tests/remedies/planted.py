"""Runs that try remedies of a planted script."""

from ..end_to_end.driver import SCRIPTS, run


def tried(name, remedies, folder, *options, sizes="16", budget="60s"):
    """The answer of a run that tries some remedies of a planted script."""
    script = SCRIPTS / f"remedies_{name}.py"
    result = run(
        "run", "--json", "--no-profile", "--sizes", sizes, "--budget", budget,
        "--try", remedies, *options, script, folder=folder,
    )  # fmt: skip
    assert result.code == 0, result
    assert result.left == []
    return result.answer["remedies"]


def of(remedies, name):
    return [each for each in remedies["tried"] if each["name"] == name]
