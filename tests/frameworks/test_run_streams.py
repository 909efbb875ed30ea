"""Streams without a length under frameworks: the longest of their samples come first.

Each framework takes one batch ahead, so that the first step of a trial is made with a batch of the
trial before. What reached the model is read from what the script printed.
"""

from types import SimpleNamespace

import pytest
from batchadvisor.probes.loader.reading_ahead import reads_ahead
from batchadvisor.probes.loader.sharing import why_dispatched
from torch.utils.data import DataLoader, IterableDataset

from ..end_to_end.driver import SCRIPTS, run_preloaded
from ..needs import framework
from .preloads import HUGGING_FACE, LIGHTNING

pytestmark = pytest.mark.frameworks
OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--worst-case")
OF_MEMORY = ("--goal", "memory", "--max-batch", "64", "--budget", "10s")
"""Two windows of two steps each, in one process."""
NATIVE, LONGEST = 16, 61


def assert_longest_first(folder, *words, preload, micro_batches=1):
    """Each trial met the longest of its size, in all steps that count; returns the run."""
    script = SCRIPTS / "framework_streams.py"
    options = ("run", *OPTIONS, *OF_MEMORY)
    done = run_preloaded(*options, script, *words, folder=folder, preload=preload)
    assert done.code == 0, done
    assert done.left == []
    discovery = done.record.discovery
    assert (discovery.native_batch_size, discovery.micro_batches) == (NATIVE, micro_batches)
    assert (discovery.primary.iterable, discovery.primary.steered) == (True, "exact")
    assert "worst_case" not in discovery.unavailable
    trials = done.record.trials
    assert [trial.batch_size for trial in trials[:2]] == [NATIVE, 64]
    for trial in trials:
        size, chosen = trial.batch_size, trial.inputs.chosen
        assert (trial.outcome, trial.arrived_batch_size, trial.size_proof) == ("ok", size, "shape")
        assert (chosen.length, chosen.num_samples, chosen.longest) == ("longest", size, LONGEST)
    # Steps on fake tensors may have come before, in a process of their own.
    processes = done.log.split("process\n")[1:]
    lines = (line.split() for line in processes[trials[0].worker].splitlines())
    seen = [(int(line[1]), int(line[2])) for line in lines if line[:1] == ["batch"]]
    # The first step, with a batch of before, is left out; both that count have the longest.
    # The batch that was taken ahead begins the next trial.
    first = seen.index((64, LONGEST))
    assert seen[:first].count((NATIVE, LONGEST)) == 3 * micro_batches, seen
    assert seen[first:].count((64, LONGEST)) >= 2 * micro_batches, seen
    return done


@pytest.mark.parametrize("how", ["dispatched", "sharded"])
def test_accelerate(tmp_path, how):
    framework("accelerate")
    done = assert_longest_first(tmp_path, "accelerate", how, preload=HUGGING_FACE)
    dispatched = done.record.discovery.primary.dispatch_batches
    assert dispatched == (True if how == "dispatched" else None)


def test_trainer(tmp_path):
    """With accumulation, and with workers that have made batches of the size before."""
    framework("transformers")
    framework("accelerate")
    assert_longest_first(tmp_path, "trainer", preload=HUGGING_FACE, micro_batches=2)


def test_lightning(tmp_path):
    framework("lightning")
    assert_longest_first(tmp_path, "lightning", preload=LIGHTNING)


class Asked(IterableDataset):
    """Tells of each sample whether the one who fetches it takes a batch ahead."""

    def __init__(self, num=None):
        self.num = num

    def __iter__(self):
        for _ in range(3):
            yield float(reads_ahead())

    def __len__(self):
        if self.num is None:
            raise TypeError
        return self.num


def said(batches):
    return [float(batch[0]) for batch in batches]


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize(("num", "ahead"), [(None, [1, 1, 1]), (3, [0, 0, 0])])
def test_lightning_takes_a_batch_ahead_without_a_length(num, ahead):
    framework("lightning")
    from lightning.pytorch.loops.fetchers import _PrefetchDataFetcher
    from lightning.pytorch.utilities.combined_loader import CombinedLoader

    fetcher = _PrefetchDataFetcher()
    loader = DataLoader(Asked(num), batch_size=1)
    fetcher.setup(CombinedLoader(loader))
    assert said(batch for batch, _, _ in fetcher) == ahead
    assert said(loader) == [0, 0, 0]


def test_accelerate_takes_a_batch_ahead_of_any_loader():
    framework("accelerate")
    from accelerate.data_loader import DataLoaderDispatcher, DataLoaderShard

    for kind in (DataLoaderShard, DataLoaderDispatcher):
        assert said(kind(Asked(), batch_size=1)) == [1, 1, 1]


def test_ranks_that_one_process_reads_for_are_refused_with_what_to_set():
    framework("accelerate")
    from accelerate.data_loader import DataLoaderDispatcher

    dispatcher = DataLoaderDispatcher(Asked(), batch_size=4)
    assert why_dispatched(dispatcher.base_dataloader) == ("", "")
    dispatcher.state = SimpleNamespace(num_processes=2)
    reason, remedy = why_dispatched(dispatcher.base_dataloader)
    assert "its default for an iterable dataset" in reason
    assert "DataLoaderConfiguration(dispatch_batches=False)" in remedy
    assert "--ranks 2 --batch-size 4 --iterable" in remedy
