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


def test_every_case_is_provoked():
    """Something ran for each: one that is only read in source, or waits for a GPU, is a loss."""
    by_case = proofs()
    assert list(by_case) == [case.id for case in CASES]
    assert len(by_case) == 33
    for name, own in by_case.items():
        assert all(proof.versions or proof.how == "needs a GPU" for proof in own), name
        assert any(proof.how == "ran" for proof in own), name
