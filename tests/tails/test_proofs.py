"""Every case has a test that provokes it, and the stored table says so."""

from batchadvisor.advisor.tails.cases import CASES
from batchadvisor.session.tails import proofs

from ..proofs import declared, stored


def test_the_stored_table_is_that_of_the_tests():
    """Write it anew with BATCHADVISOR_UPDATE_GOLDEN=1, in an environment with the frameworks."""
    known = {(name, one["what"], one["test"]) for name, own in stored().items() for one in own}
    assert known == declared()


def test_every_case_is_provoked_or_says_why_not():
    found = proofs()
    assert list(found) == [one.id for one in CASES]
    assert len(found) == 32
    for name, own in found.items():
        assert own, name
        assert all(one.versions or one.how == "needs a GPU" for one in own), name


def test_what_is_only_read_or_waits_for_a_gpu():
    """The cases in which nothing at all ran; a new one here is a loss."""
    without = {name for name, own in proofs().items() if not any(one.how == "ran" for one in own)}
    assert without == set()
