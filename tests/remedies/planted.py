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


def left_open(tried):
    """Whether nothing is said of a remedy as others were busy beside it, which is then right."""
    return tried["outcome"] == "cannot tell" and tried["load"] != ""


def had_no_time(remedies, name):
    """Whether no try of a remedy was timed, on a machine so busy that the time went by."""
    reasons = {each["reason"] for each in of(remedies, name)}
    none = {"no time was left", "the time was over before its steps could be timed"}
    return reasons <= none and remedies["spent_s"] > remedies["budget_s"] / 2
