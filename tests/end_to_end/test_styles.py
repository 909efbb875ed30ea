"""Scripts of every plain style: what was found, what ran, and the line to change."""

from itertools import pairwise

import pytest
from batchadvisor.advisor.explain.change import change
from batchadvisor.session.workers.restarts import MAX_RESTARTS

from .driver import KEPT, changed_line, line_of
from .styles import STYLES

pytestmark = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if style.slow else name
        for name, style in STYLES.items()
    ],
)


def place_of(result, name, text):
    return f"{name}.py:{line_of(result.folder / f'{name}.py', text)}"


def test_it_ends_well(styled, name):
    result = styled(name)
    assert result.code == 0, result
    assert result.stderr == ""
    assert result.left == []
    assert result.record.state == "finished"
    assert result.record.faults == ()
    assert result.record.stop_reason


def test_its_loaders_and_optimizers_are_found(styled, name):
    result, style = styled(name), STYLES[name]
    discovery = result.record.discovery
    assert [str(loader.place) for loader in discovery.loaders] == [
        place_of(result, name, text) for text in style.loaders
    ]
    assert [loader.ordinal for loader in discovery.loaders if loader.trains] == list(style.trains)
    assert discovery.primary_loader == style.trains[0]
    assert discovery.native_batch_size == discovery.primary.batch_size == style.native
    assert discovery.micro_batches == style.micro_batches
    assert (discovery.steps_per_batch, discovery.pool) == (style.steps_per_batch, style.pool)
    assert discovery.why_steps_unknown == ""
    primary = discovery.primary
    assert primary.num_samples == style.num_samples
    assert primary.num_workers == style.num_workers
    assert primary.drop_last == style.drop_last
    assert primary.iterable == style.iterable
    assert primary.steered == "exact"
    if not style.iterable:
        assert primary.sampler == style.sampler
    assert [(each.name, str(each.place)) for each in discovery.optimizers] == [
        (kind, place_of(result, name, text)) for kind, text in style.optimizers
    ]
    assert all(each.trains and each.num_parameters > 0 for each in discovery.optimizers)
    total = sum(each.num_parameters for each in discovery.optimizers)
    assert (discovery.num_parameters, discovery.parameter_device) == (total, "cpu")


def test_every_size_arrived_and_was_measured(styled, name):
    result, style = styled(name), STYLES[name]
    trials = [trial for trial in result.record.trials if trial.purpose != "tail"]
    assert trials
    for trial in trials:
        if name == "explicit_iter" and trial.kind == "turns" and trial.outcome == "script_ended":
            continue  # its step budget may be too small for a comparison
        assert (trial.outcome, trial.arrived_batch_size) == ("ok", trial.batch_size)
        assert trial.size_proof == "shape"
        assert trial.micro_batches == style.micro_batches
        assert trial.steps_per_batch == style.steps_per_batch
    for trial in result.record.trials:
        if trial.outcome != "ok":
            continue  # a last batch, or a comparison, as above
        if trial.kind == "turns":
            assert len(trial.turns.step_s) >= 3
            continue
        assert trial.memory.peak_bytes > 50 * 1024**2
        assert trial.memory.peak_source
        if trial.kind == "timed":
            assert 0 < trial.step_s.low <= trial.step_s.median <= trial.step_s.high
            assert trial.step_s.num_samples >= (3 if trial.quality.num_disturbed else 4)
            rate = trial.batch_size * trial.micro_batches / trial.step_s.median
            assert trial.samples_per_s.median == pytest.approx(rate)
            assert trial.input_wait_s.median <= trial.step_s.high
    if "--sizes" in style.options:
        asked = style.options[style.options.index("--sizes") + 1]
        searched = [str(trial.batch_size) for trial in trials if trial.purpose == "search"]
        assert searched == asked.split(",")
        if "memory" in style.options:
            largest = int(searched[-1])
            assert result.advice.recommended.batch_size == largest
            # Another size may be timed beside it there, to compare them in a fresh process.
            assert largest in [trial.batch_size for trial in trials if trial.purpose == "confirm"]


def test_the_recommended_size_ran_and_was_confirmed(styled, name):
    result = styled(name)
    advice, trials = result.advice, result.record.trials
    chosen = advice.recommended
    assert trials[chosen.trial].batch_size == chosen.batch_size
    if advice.standing in (*KEPT, "own"):  # nothing to change, so nothing to confirm
        assert chosen.batch_size == STYLES[name].native
        assert advice.headline.startswith(f"Keep batch size {chosen.batch_size}: ")
        assert advice.change == "nothing to change"
        return
    assert advice.sureness in ("confirmed", "not confirmed")
    search = {trial.worker for trial in trials if trial.purpose == "search"}
    confirmed = {trial.batch_size: trial.worker for trial in trials if trial.purpose == "confirm"}
    assert confirmed[chosen.batch_size] not in search
    assert len(set(confirmed.values())) == 1
    if advice.standing == "asked for":
        assert advice.headline.startswith(f"Of the sizes asked for, {chosen.batch_size}: ")
        assert not advice.change
    else:
        assert advice.headline.startswith(f"Use batch size {chosen.batch_size}: ")


def test_the_change_names_the_right_line(styled, name):
    result, style = styled(name), STYLES[name]
    advice = result.advice
    size = advice.recommended.batch_size
    if size == style.native:
        assert advice.change == "nothing to change"
        return
    told = advice.change
    if advice.standing == "asked for":  # the line is known, and not told before a comparison
        assert not told
        told = change(result.record, size, advice.training.micro_batches)
    file, line, before, after = changed_line(told)
    assert f"{file}:{line}" == place_of(result, name, style.source)
    text = (result.folder / file).read_text().splitlines()[line - 1]
    if style.written:
        assert style.written in text
        assert before.startswith(style.written)
    else:
        assert before in text
        assert str(style.native) in before
        assert before.replace(str(style.native), str(size)) == after
    assert after.endswith(str(size)) or f"{size}," in after or f"{size})" in after


def test_the_epoch_adds_up(styled, name):
    result, style = styled(name), STYLES[name]
    advice = result.advice
    size = advice.recommended.batch_size
    if style.iterable:
        assert advice.tail is None
        assert advice.unavailable["tail"]
        return
    full, left = divmod(style.num_samples, size)
    batches = full if style.drop_last or not left else full + 1
    assert advice.tail.batch_size == size
    assert advice.tail.last_batch == (0 if style.drop_last else left)
    assert advice.tail.dropped == (left if style.drop_last else 0)
    micro = advice.training.micro_batches
    assert advice.training.effective_after == size * micro
    assert advice.training.steps_after == -(-batches // micro) * style.steps_per_batch
    assert advice.tail.steps_per_epoch == advice.training.steps_after
    epoch_s = style.num_samples / advice.recommended.samples_per_s.median
    trial = result.record.trials[advice.recommended.trial]
    epoch_s *= 1 + trial.quality.slow_s / (trial.step_s.median * trial.quality.num_steps)
    assert advice.recommended.epoch_s.median == pytest.approx(epoch_s, rel=0.02)


def test_one_worker_runs_all_of_the_search(styled, name):
    trials = styled(name).record.trials
    workers = {trial.worker for trial in trials if trial.purpose == "search"}
    if name == "explicit_iter":
        # Its budget of steps may end in the middle of a window: such a worker has no trial.
        without = set(range(max(workers) + 1)) - workers
        assert len(without) <= MAX_RESTARTS
    else:
        assert workers == {0}
    assert [trial.ordinal for trial in trials] == list(range(len(trials)))
    assert all(earlier.worker <= later.worker for earlier, later in pairwise(trials))
