"""What keeps several processes of tests from doing things twice, or from losing something."""

from .parallel import group_of
from .proofs import Watch


def test_files_that_look_at_the_same_runs_stay_together():
    files = [f"tests/end_to_end/test_{name}.py" for name in ("styles", "goals", "faults", "traces")]
    assert len({group_of(file) for file in files}) == 1
    alone = "tests/end_to_end/test_kinds.py"
    assert group_of(alone) == alone


def test_what_must_run_alone_is_slow(request):
    """Only slow tests are run apart from the others, where they are marked `alone`."""
    beside_others = [
        item.nodeid
        for item in request.session.items
        if item.get_closest_marker("alone") and not item.get_closest_marker("slow")
    ]
    assert beside_others == []


def test_a_failed_proof_stays_failed():
    """Whichever of two processes is heard first."""
    key = ["loader.short", "what", "tests/tails/test_x.py::test_y"]
    for order in (("failed", "ran"), ("ran", "failed")):
        watch = Watch()
        for how in order:
            watch.take([[key, how, {}]])
        assert watch.told() == [[key, "failed", {}]]
        assert watch.finish() == []


def test_a_proof_that_differs_is_told():
    watch = Watch()
    watch.take([[["no.case", "what", "tests/tails/test_x.py::test_y"], "ran", {}]])
    (line,) = watch.finish()
    assert line.startswith("no.case: 'ran' here, None in proofs.json")
