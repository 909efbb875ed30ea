"""What is said of windows and numbers that were measured, on trials of paper."""

from types import SimpleNamespace

import pytest
from batchadvisor.advisor.measured.speeds import OF_A_CPU
from batchadvisor.features.remedies.catalogue import Known, candidates
from batchadvisor.features.remedies.records import NumbersChecked, Remedies, TriedRemedy
from batchadvisor.features.remedies.settings import Kept
from batchadvisor.features.remedies.trying import Trying, _Measured, _settings_of

from .known import A_SCRIPT
from .test_compare import rounds

KNOWN = Known(used=A_SCRIPT, memory_limits=True)


@pytest.fixture
def trying(monkeypatch):
    """A go that measured nothing, and saves nothing."""
    made = object.__new__(Trying)
    made.__dict__ |= {
        "_wander": OF_A_CPU,
        "_known": KNOWN,
        "_remedies": Remedies(asked=("all",), batch_size=8, device="", budget_s=9.0),
    }
    monkeypatch.setattr(made, "_change", lambda **_: None)
    monkeypatch.setattr(made, "_as_diff", lambda *_: {})
    return made


def judged(trying, *names, size=None, **kept):
    """What is said where the remedies gain x1.6."""
    what = [candidates(KNOWN, (name,))[0] for name in names]
    its = Kept(steps=(), **{"last_loss": 1.0, **kept})
    measured = _Measured(rounds(1.6, 6, noise=0.01), Kept(steps=(), last_loss=1.0), its)
    return trying._judged(what, _settings_of(what), measured, size=size)


@pytest.mark.parametrize("size", [None, 16])
@pytest.mark.parametrize(
    "kept", [{"last_loss": float("nan")}, {"num_skipped": 99, "num_scaled": 100}]
)
def test_numbers_that_do_not_train_are_no_gain_at_any_size(trying, size, kept):
    assert judged(trying, "fp16", size=size, **kept).outcome == "wrong numbers"
    good = judged(trying, "fp16", size=size)
    assert good.outcome == "gain"
    assert bool(good.numbers.reason)


def test_a_remedy_whose_numbers_do_not_train_makes_no_room(trying):
    sizes = {"usual_bytes": 100, "peak_bytes": 50}
    of = {"name": "fp16", "change": "fp16", **sizes}
    assert trying._makes_room(TriedRemedy(outcome="slower", **of))
    bad = NumbersChecked(finite=False)
    assert not trying._makes_room(TriedRemedy(outcome="wrong numbers", numbers=bad, **of))


def test_a_rate_is_written_as_a_number(trying):
    """16 samples in 1 ms are 16,000 a second, and no 1.6e+04."""
    refused = SimpleNamespace(outcome="out_of_memory", batch_size=64, step_s=None)
    ran = SimpleNamespace(outcome="ok", batch_size=16, step_s=SimpleNamespace(median=0.001))
    discovery = SimpleNamespace(native_batch_size=16)
    record = SimpleNamespace(trials=[ran, refused], discovery=discovery)
    trying.__dict__ |= {"_record": record, "_size": 16}
    assert "at most 16000 samples/s" in trying._accumulates(A_SCRIPT)
