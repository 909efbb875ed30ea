"""What waits of the host are worth, and what to do about copies."""

from __future__ import annotations

import re

import pytest
from batchadvisor.advisor.explain.remedies import remedy_of
from batchadvisor.records import Copies, Profile
from batchadvisor.session.analyze import analyze

from .traces import event, kernel, launch, save, step
from .wholes import shown

SYNCHRONIZE = "cudaStreamSynchronize"


class TestCopies:
    @pytest.mark.parametrize(
        ("direction", "words"),
        [
            ("HtoD", "pin_memory=True"),
            ("DtoH", "keep results on the GPU and copy them less often"),
            ("DtoD", ".contiguous()"),
        ],
    )
    def test_the_remedy_is_that_of_the_direction(self, direction, words):
        own = Copies(direction=direction, num_copies=9, total_s=0.5, num_bytes=None)
        less = Copies(direction="other", num_copies=9, total_s=0.1, num_bytes=None)
        assert words in remedy_of("copies", Profile(copies=(less, own)))

    def test_results_that_are_fetched_each_step(self, tmp_path):
        events = []
        for number in range(5):
            begin = 1000.0 * number
            events += [step(number, begin, 999), launch(begin, 2 * number + 1),
                       kernel(begin + 8, 400, 2 * number + 1),
                       launch(begin + 10, 2 * number + 2, 5, "cudaMemcpyAsync"),
                       event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", begin + 410, 570,
                             pid=0, tid=7, device=0, stream=7, correlation=2 * number + 2,
                             bytes=1 << 20)]  # fmt: skip
        verdict = analyze([save(tmp_path / "t.json", events)]).traces[0].verdict
        assert verdict.limit == "copies"
        assert "keep results on the GPU" in verdict.remedy
        assert "uint8" not in verdict.remedy


class TestWaits:
    """What a synchronisation takes is not what its removal saves."""

    @staticmethod
    def steps(host_us, gpu_us):
        """Each step: launches, then the host waits until the GPU is done."""
        events = []
        for number in range(5):
            begin = (host_us + gpu_us) * number
            events += [step(number, begin, host_us + gpu_us - 1),
                       event("cpu_op", "aten::mm", begin, host_us - 1),
                       launch(begin + host_us - 6, number + 1),
                       kernel(begin + host_us, gpu_us, number + 1),
                       launch(begin + host_us, 900 + number, gpu_us, SYNCHRONIZE)]  # fmt: skip
        return events

    @pytest.mark.parametrize(
        ("host_us", "gpu_us", "saved"),
        [(1900.0, 300.0, 14), (2000.0, 48_000.0, 4), (5000.0, 5000.0, 50)],
        ids=["the host paces", "it is the queue", "half and half"],
    )
    def test_the_smaller_of_host_and_device_bounds_it(self, host_us, gpu_us, saved, tmp_path):
        path = save(tmp_path / "t.json", self.steps(host_us, gpu_us))
        (report,) = analyze([path]).traces
        (note,) = (note for note in report.notes if "waits for the GPU" in note)
        assert f"shorter by {saved}% at most" in note
        assert f"shorter by {saved}% at most" in re.sub(r"\s+", " ", shown(path))
        assert report.synchronisation_pct <= saved + 0.5

    def test_short_waits_are_not_spoken_of(self, tmp_path):
        (report,) = analyze([save(tmp_path / "t.json", self.steps(900.0, 50.0))]).traces
        assert not any("waits for the GPU" in note for note in report.notes)
