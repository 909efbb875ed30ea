"""Loops with batches of several sizes, and of sizes that nobody can tell."""

from __future__ import annotations

import itertools
import time

import torch
from batchadvisor import ProfilingCallback
from batchadvisor.callback.adapters.watched_loaders import BatchReader
from batchadvisor.callback.recorder import Recorder
from batchadvisor.callback.token_count import TokenCount
from batchadvisor.units import MIB


class TestSizes:
    def run_sizes(self, folder, sizes):
        """Steps of these sizes, eight of each."""
        with ProfilingCallback(folder, quiet=True, profile=False) as prof:
            for _ in prof.watch([torch.ones(size, 3) for size in sizes for _ in range(8)]):
                time.sleep(0.002)
                prof.step()
        return prof

    def test_a_growing_schedule_gives_a_trial_each(self, tmp_path):
        prof = self.run_sizes(tmp_path, [4, 8, 16])
        record = prof.record
        assert [trial.batch_size for trial in record.trials] == [4, 8, 16]
        assert all(trial.step_s is not None for trial in record.trials)
        peaks = [trial.memory.peak_bytes for trial in record.trials]
        # Read each time before a larger one ran; the kernel sums up its counters now and then.
        assert all(later > earlier - MIB for earlier, later in itertools.pairwise(peaks)), peaks
        assert prof.advice.headline.startswith("Use batch size ")
        assert "one after the other in one training" in prof.advice.reason

    def test_the_peak_of_a_smaller_size_is_hidden(self, tmp_path):
        record = self.run_sizes(tmp_path, [16, 4]).record
        by_size = {trial.batch_size: trial for trial in record.trials}
        assert by_size[16].memory is not None
        assert by_size[4].memory is None
        assert "a larger batch ran before" in by_size[4].unavailable["memory"]

    def test_batches_without_a_size(self, tmp_path):
        with ProfilingCallback(tmp_path, quiet=True, profile=False) as prof:
            for _ in prof.watch(range(20)):
                prof.step()
        assert prof.record.observed.num_steps == 20
        assert prof.record.observed.num_samples is None
        assert "batch_size=" in prof.record.observed.unavailable["num_samples"]
        assert prof.advice.recommended is None

    def test_their_size_may_be_told(self, tmp_path):
        """As a loop needs it that draws its batches itself."""
        with ProfilingCallback(tmp_path, quiet=True, profile=False, batch_size=12) as prof:
            for _ in prof.watch(range(20)):
                prof.step()
        record = prof.record
        assert record.observed.num_samples == 240
        assert (record.trials[0].batch_size, record.trials[0].size_proof) == (12, "asked")
        assert record.trials[0].samples_per_s is not None
        assert "batch_size=12 is taken" in record.doubts[0]

    def test_nothing_is_due_between_all_steps_of_such_batches(self, tmp_path, monkeypatch):
        """There is no size to file a trace under; more than a few looks for one would cost."""
        asked = []
        native = Recorder.boundary

        def boundary(self, core, now_ns):
            asked.append(core.num_ended)
            native(self, core, now_ns)

        monkeypatch.setattr(Recorder, "boundary", boundary)
        with ProfilingCallback(tmp_path, quiet=True, profile_after=10) as prof:
            for _ in prof.watch(range(200)):
                prof.step()
        assert prof.record.observed.num_steps == 200
        assert len(asked) < 20

    def test_batches_that_cannot_be_read(self, tmp_path):
        """They go to the loop as they are: a length of torch's nested tensors is no number."""
        rows = [torch.ones(3, 2), torch.ones(5, 2)]
        batches = [torch.nested.nested_tensor(rows, layout=torch.jagged) for _ in range(10)]
        with ProfilingCallback(tmp_path, quiet=True, profile=False) as prof:
            seen = [batch for batch in prof.watch(batches) if prof.step() is None]
        assert all(one is other for one, other in zip(seen, batches, strict=True))
        observed = prof.record.observed
        assert (observed.num_steps, observed.num_samples) == (10, None)
        assert BatchReader(2, TokenCount()).read(batches[0]) is None

    def test_lists_of_images_are_counted_by_items(self, tmp_path):
        """100 images of 16 rows with up to 5 boxes each; six batches of 16 and one of 4."""
        data = [(torch.zeros(3, 16, 16), {"boxes": torch.zeros(1 + i % 5, 4)}) for i in range(100)]
        loader = torch.utils.data.DataLoader(
            data, batch_size=16, collate_fn=lambda batch: tuple(zip(*batch, strict=True))
        )
        with ProfilingCallback(tmp_path, quiet=True, profile=False) as prof:
            for _ in prof.watch(loader):
                prof.step()
        observed = prof.record.observed
        assert observed.num_samples == 100
        assert {size.batch_size: size.num_micro_batches for size in observed.sizes} == {16: 6, 4: 1}
        assert prof.record.trials[0].tail.num_samples == 4

    def test_what_is_kept_for_each_size_of_a_schedule(self, tmp_path, capfd):
        data = torch.utils.data.TensorDataset(torch.ones(100, 3))
        with ProfilingCallback(tmp_path, profile=False) as prof:
            for size in (16, 32, 25):
                loader = torch.utils.data.DataLoader(data, batch_size=size)
                for _ in range(2):
                    for _ in prof.watch(loader):
                        time.sleep(0.001)
                        prof.step()
        trials = prof.record.trials
        tails = {each.batch_size: each.tail and each.tail.num_samples for each in trials}
        assert tails == {16: 4, 32: 4, 25: None}
        lines = capfd.readouterr().err.splitlines()
        first, second = [line for line in lines if "end of each epoch" in line]
        assert "weigh 4.0 times" in first
        assert "weigh 8.0 times" in second
        text = " ".join(str(prof).split())
        assert "16: 12 micro-batches" in text
        assert "a last batch of 4 ran; 25: 8 micro-batches" in text
        assert "; 32: 6 micro-batches" in text
        assert "room for about" not in text  # the peak of a process does not move by these

    def test_tokens_are_counted(self, tmp_path):
        with ProfilingCallback(tmp_path, quiet=True, profile=False) as prof:
            for batch in prof.watch([torch.ones(4, 3)] * 10):
                prof.step(num_tokens=batch.numel())
        assert prof.record.observed.num_tokens == 120
        assert "40 samples, 120 tokens" in str(prof)
