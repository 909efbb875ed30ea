"""Refusals and failures that say nothing of memory's limit: whose memory it was, what no kernel
takes. The words are those of public reports; the numbers around them are made up.
"""

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain.known_failures import PINNED, failure_of, known_failure
from batchadvisor.advisor.explain.tail_findings import tail_findings
from batchadvisor.advisor.measured.kernel_limits import kernel_limit
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.refused import request_of
from batchadvisor.advisor.search.next_trial import Done, next_trial
from batchadvisor.errors import ScriptError
from batchadvisor.probes.process.endings import over
from batchadvisor.probes.process.messages import Raised
from batchadvisor.records import Goal, TailCheck
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers.failures import (
    error_of,
    nothing_fits,
    refusal_before_the_loop,
)

from ..on_paper import GIB, discovery_of, numbered, record_of, trial_of
from ..on_paper import failure_of as failed

TAKEN = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity "
    "of 23.64 GiB of which 36.00 MiB is free. Process 4242 has 22.70 GiB memory in use. Including "
    "non-PyTorch memory, this process has 768.00 MiB memory in use. Of the allocated memory 400.00 "
    "MiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated."
)
OWN = TAKEN.replace("Process 4242 has 22.70 GiB memory in use. ", "").replace("768.00 M", "22.90 G")
IN_A_CONTAINER = TAKEN.replace(
    "Including non-PyTorch memory, this process has 768.00 MiB memory in use. ", ""
).replace("400.00 MiB is allocated", "22.10 GiB is allocated")
OLDER = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total "
    "capacity; 21.12 GiB already allocated; 7.20 MiB free; 21.20 GiB reserved in total by PyTorch)"
)
TWO_OTHERS = TAKEN.replace(
    "Process 4242 has 22.70 GiB", "Process 7 has 12.00 GiB memory in use. Process 8 has 10.70 GiB"
)
LATIN_ONLY = "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a tot"


def refused(size, detail, **changes):
    return failed(size, detail=detail, **changes)


def record(*trials, workers=1, **changes):
    return record_of(numbered(*trials), num_workers_started=workers, **changes)


def rules(advice):
    return {finding.rule: finding for finding in advice.findings}


def raised(detail):
    kind, _, text = detail.partition(": ")
    return over(Raised(kind=kind, text=text, traceback="it", out_of_memory=True))


class TestWhoseMemory:
    @pytest.mark.parametrize("words", [TAKEN, TWO_OTHERS])
    def test_another_process_holds_it(self, words):
        request = request_of(words)
        assert request.is_taken()
        assert request.is_taken(23 * GIB)  # was free when the run began
        assert round(request.others_bytes / GIB, 1) == 22.7

    @pytest.mark.parametrize("words", [OWN, IN_A_CONTAINER, OLDER, LATIN_ONLY])
    def test_it_cannot_be_told_or_is_the_script(self, words):
        assert not request_of(words).is_taken()

    def test_a_neighbour_that_was_there_from_the_start_is_no_news(self):
        assert not request_of(TAKEN.replace("20.00 MiB.", "1.00 GiB.")).is_taken(GIB)

    @pytest.mark.parametrize("words", [TAKEN, TWO_OTHERS])
    def test_the_search_stops_and_says_who(self, words):
        run = record(refused(8, words), capacity=23 * GIB)
        stop = next_trial(run)
        assert isinstance(stop, Done)
        assert "process 4242 holds" in stop.reason or "process 7 holds" in stop.reason
        error = nothing_fits(run, "", "log")
        assert "nothing fits" not in str(error)
        assert "--device cuda:N" in error.remedy

    def test_a_later_process_goes_on(self):
        """Of a resumed run, or where the search started another."""
        trials = trial_of(8, 0.1), refused(16, TAKEN)
        assert not isinstance(next_trial(record(*trials, workers=2, capacity=23 * GIB)), Done)

    def test_what_ran_stands_and_no_size_is_blamed(self):
        ran = [trial_of(size, size / 100, peak=GIB) for size in (1, 8)]
        run = record(*ran, refused(32, TAKEN), capacity=23 * GIB)
        assert nothing_fits(run, "", "log") is None
        assert Measurements.of(run).smallest_bad is None
        advice = advise(run)
        found = rules(advice)
        assert "process 4242 holds 22.70 GiB" in found["memory.not_the_size"].message
        assert "memory.refused" not in found
        assert advice.recommended is not None

    def test_before_the_loop_no_smaller_batch_is_tried(self, tmp_path):
        assert refusal_before_the_loop(raised(TAKEN), None) is not None
        assert refusal_before_the_loop(raised(OWN), None) is None
        error = error_of(raised(TAKEN), RunOptions(script="a.py"), tmp_path, None)
        assert "process 4242 holds" in str(error)


class TestAbsurdRequests:
    OF_A_GPU = (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 125537.00 GiB. GPU 0 has a total "
        "capacity of 23.64 GiB of which 20.00 GiB is free."
    )
    ENDLESS = "OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory."
    OF_NCCL = "DistBackendError: Failed to CUDA calloc async 1152921504606846976 bytes"
    OF_A_CPU = (
        "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 1125899906842624000 bytes. Error code 12 (Cannot allocate memory)"
    )

    @pytest.mark.parametrize("words", [OF_A_GPU, ENDLESS, OF_NCCL, OF_A_CPU])
    def test_named_at_once(self, words, tmp_path):
        assert refusal_before_the_loop(raised(words), None) is not None
        run = record(refused(128, words), capacity=24 * GIB, discovery=discovery_of(native=128))
        assert isinstance(next_trial(run), Done)
        error = nothing_fits(run, "the traceback", "log")
        assert isinstance(error, ScriptError)
        assert "were asked for at once" in str(error)
        assert "fault of the script" in error.remedy
        error = error_of(raised(words), RunOptions(script="a.py"), tmp_path, None)
        assert "fault of the script" in error.remedy

    def test_a_large_batch_may_ask_for_much(self):
        words = self.OF_A_GPU.replace("125537.00", "400.00")
        assert not request_of(words).is_absurd(128, None)
        assert request_of(words).is_absurd(8, None)
        assert not request_of(words).is_absurd(None, None)
        assert not isinstance(next_trial(record(refused(128, words))), Done)


class TestPinnedMemory:
    def test_the_remedy_is_that_of_the_host(self):
        words = "RuntimeError: CUDA error: out of memory (in the pin memory thread for device 0)"
        run = record(trial_of(8, 0.1), refused(512, words))
        assert failure_of(run.trials[1], run.device, smaller_ran=True) == PINNED
        assert "pin_memory=False" in rules(advise(run))["memory.not_the_size"].remedy

    @pytest.mark.parametrize("words", [OWN, "CUDA error: out of memory"])
    def test_a_refusal_of_the_device_is_no_such_thing(self, words):
        assert failure_of(refused(8, words), None, smaller_ran=True) is None


class TestKernelLimits:
    def test_an_index_of_32_bits(self):
        """32 ran and 33 crashed: by the shapes 32 is the most."""
        words = "AcceleratorError: CUDA error: an illegal memory access was encountered"
        crashed = failed(33, "exception", detail=words, largest_tensor=(33, 2048, 32768))
        ran = trial_of(8, 0.1, peak=GIB), trial_of(32, 0.3, peak=2 * GIB)
        found = rules(advise(record(*ran, crashed, workers=2)))
        assert "memory is not the limit" in found["trial.exception"].message
        assert "2,214,592,512 elements" in found["trial.exception"].message
        assert "Take 32 or less" in found["trial.exception"].remedy
        assert not [rule for rule in found if rule.startswith("memory.refused")]

    def test_the_search_takes_the_number_and_is_not_worn_out(self):
        """One failure is enough: no larger size is tried again."""
        words = "an illegal memory access was encountered"
        for goal in (Goal(kind="memory"), Goal()):
            trials = [trial_of(8, 0.1008, peak=GIB)]
            trials += [failed(64, "exception", detail=words, largest_tensor=(64, 2048, 32768))]
            for _ in range(40):
                step = next_trial(record(*trials, goal=goal))
                if isinstance(step, Done) or step.purpose != "search":
                    break
                assert step.batch_size <= 32
                peak = GIB + step.batch_size * 2**20
                trials.append(trial_of(step.batch_size, 0.1 + 1e-4 * step.batch_size, peak=peak))
            assert max(trial.batch_size for trial in trials if trial.ran) == 32

    @pytest.mark.parametrize(
        ("words", "size", "shape", "largest"),
        [
            ("CUDA error: invalid configuration argument", 65_536, (65_536, 8, 16, 64), 65_535),
            ("CUDA error: invalid configuration argument", 8192, (131_072, 64, 16), 4095),
            ("Triton Error [CUDA]: invalid argument", 70_000, (), 65_535),
            ("upsample_nearest2d only supports output tensors with less than INT_MAX elements", 64,
             (64, 512, 256, 256), 63),
            ("input tensor is too large for 32-bit indexing", 16, (16, 4096, 65_536), 7),
            # A tensor that grows with the square gives no size.
            ("an illegal memory access was encountered", 50_000, (50_000, 50_000), None),
        ],
    )  # fmt: skip
    def test_the_number_by_the_shapes(self, words, size, shape, largest):
        limit = kernel_limit(words, size, shape)
        assert limit.largest == largest
        assert limit.why

    @pytest.mark.parametrize(
        "words",
        [
            "CUDA error: invalid configuration argument",
            "Triton Error [CUDA]: invalid argument",
            "nll_loss2d: input has more than INT_MAX elements",
        ],
    )
    def test_without_shapes_a_smaller_size_that_ran_tells(self, words):
        assert kernel_limit(words, 64, (64, 3)) is None
        assert kernel_limit(words, 64, (64, 3), smaller_ran=True).largest is None
        assert "memory is not the limit" in known_failure(words, 64, smaller_ran=True).what

    @pytest.mark.parametrize(
        ("words", "shape"),
        [
            ("an illegal memory access was encountered", ()),
            ("CUDA error: device-side assert triggered", (33, 2048, 32768)),
            ("CUDA error: an illegal mem", (33, 2048, 32768)),
            ("RuntimeError: The size of tensor a must match", (33, 2048, 32768)),
        ],
    )
    def test_a_bug_stays_one(self, words, shape):
        assert kernel_limit(words, 33, shape, smaller_ran=True) is None


class TestAnEvaluation:
    ASIDE = "a batch of 64 of the loader made at train.py:31"

    def test_the_training_size_stands(self):
        run = record(trial_of(8, 0.1, peak=GIB), refused(32, OWN, aside=self.ASIDE))
        assert isinstance(next_trial(run), Done)
        assert Measurements.of(run).smallest_bad is None
        advice = advise(run)
        assert advice.recommended.batch_size == 8
        finding = rules(advice)["memory.not_the_size"]
        assert self.ASIDE in finding.message
        assert "torch.no_grad()" in finding.remedy

    def test_where_nothing_ran_the_error_says_it(self):
        error = nothing_fits(record(refused(8, OWN, aside=self.ASIDE)), "", "log")
        assert "train.py:31" in str(error)
        assert "The training size stands" in error.remedy

    def test_a_refusal_of_the_training_is_one(self):
        assert next_trial(record(refused(8, OWN))).batch_size < 8


class TestPartsOfDataParallel:
    @pytest.mark.parametrize(
        ("words", "axis"),
        [
            ("Gather got an input of invalid size: got [2, 3, 12], but expected [2, 4, 12] (x)", 1),
            ("Input tensor at index 1 has invalid shape [1, 5, 256], but expected [1, 6, 256]", 1),
            ("Input tensor at index 3 has invalid shape [14, 14], but expected [14, 17]", 1),
            ("Input tensor at index 1 has invalid shape [5], but expected [6]", None),
            ("Input tensor at index 1 has inv", None),
        ],
    )
    def test_the_axis_in_which_they_differ(self, words, axis):
        known = known_failure(words)
        assert (known is None) is (axis is None)
        if axis is not None:
            assert f"differ in axis {axis}" in known.what
            assert "drop_last=True" in known.remedy

    def test_the_executed_last_batch_says_it(self):
        words = "RuntimeError: Input tensor at index 3 has invalid shape [2, 1, 9], but expected "
        check = TailCheck(num_samples=13, outcome="exception", detail=words + "[2, 4, 9]")
        found = tail_findings(Measurements.of(record(trial_of(16, 0.1))), 16, None, check)
        assert "differ in axis 1" in found[0].message
