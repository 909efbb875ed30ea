"""Every case has a test that provokes it, and the stored table says so."""

from batchadvisor.advisor.tails.cases import CASES
from batchadvisor.session.tails import proofs

from ..proofs import declared, stored


def test_the_stored_table_is_that_of_the_tests():
    """Write it anew with BATCHADVISOR_UPDATE_GOLDEN=1, in an environment with the frameworks."""
    known = {
        (name, entry["what"], entry["test"]) for name, own in stored().items() for entry in own
    }
    assert known == declared()


def test_every_case_is_provoked_or_says_why_not():
    by_case = proofs()
    assert list(by_case) == [case.id for case in CASES]
    assert len(by_case) == 33
    for name, own in by_case.items():
        assert own, name
        assert all(proof.versions or proof.how == "needs a GPU" for proof in own), name


def test_what_is_only_read_or_waits_for_a_gpu():
    """The cases in which nothing at all ran; a new one here is a loss."""
    without = {
        name for name, own in proofs().items() if not any(proof.how == "ran" for proof in own)
    }
    assert without == set()
