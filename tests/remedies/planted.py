"""Runs that try remedies of a planted script."""

from ..end_to_end.driver import LIMIT_S, SCRIPTS, start

WANDERED = 1.3
"""Rounds of the same steps differ by so much where others are busy, and by some per cent else."""


def tried(name, remedies, folder, *options, sizes="16", budget="60s", limit_s=LIMIT_S):
    """The answer of a run that tries some remedies of a planted script."""
    script = SCRIPTS / f"remedies_{name}.py"
    result = start(
        "run", "--json", "--no-profile", "--sizes", sizes, "--budget", budget,
        "--try", remedies, *options, script, folder=folder,
    ).finish(limit_s=limit_s)  # fmt: skip
    assert result.code == 0, result
    assert result.left == []
    return result.answer["remedies"]


def of(remedies, name):
    return [each for each in remedies["tried"] if each["name"] == name]


def disturbed(*tries):
    """Whether others were busy beside them.

    Where they never left, a load tells of them; where they came and went, the rounds of the script
    as it is do.
    """
    usual = [rate for each in tries for rate, _ in each["rates"]]
    wandered = bool(usual) and max(usual) > WANDERED * min(usual)
    return wandered or any(each["load"] for each in tries)


def left_open(tried):
    """Whether nothing is said of a remedy as others were busy beside it, which is then right."""
    return tried["outcome"] == "cannot tell" and disturbed(tried)


def had_no_time(remedies, name):
    """Whether no try of a remedy was timed, on a machine so busy that the time went by."""
    reasons = {each["reason"] for each in of(remedies, name)}
    none = ("too little time was left", "the time was over before its steps could be timed")
    return (
        all(reason.startswith(none) for reason in reasons)
        and remedies["spent_s"] > remedies["budget_s"] / 2
    )
