"""The two pipes between supervisor and worker."""

import os
import threading
from typing import get_args

import pytest
from batchadvisor.probes.process.channel import Channel, ChannelClosedError
from batchadvisor.probes.process.messages import (
    Answered,
    CannotSteer,
    Ended,
    FakeResult,
    Found,
    FromWorker,
    Hello,
    PairsResult,
    Progress,
    Raised,
    Ready,
    RecordedResult,
    Result,
    Spawning,
    StepSample,
    Touched,
    decode_from_worker,
)
from batchadvisor.probes.process.orders import (
    Ask,
    GoOn,
    RunFake,
    RunPairs,
    RunRecorded,
    RunTrial,
    ToWorker,
    WorkOrder,
    decode_to_worker,
)
from batchadvisor.records import (
    FakeTrial,
    FileTouched,
    Parallelism,
    RankPairs,
    TrialRequest,
    Variant,
    Versions,
)

from ..on_paper import CPU, discovery_of, trial_of

FAKE = FakeTrial(
    batch_size=64,
    peak_bytes=7,
    parameter_bytes=1,
    gradient_bytes=1,
    optimizer_bytes=2,
    input_bytes=3,
)

FROM_WORKER = [
    Ready(),
    Hello(versions=Versions(batchadvisor="1", python="3", torch="2")),
    Found(discovery=discovery_of(), device=CPU, parallelism=Parallelism(devices={"cpu": 4})),
    Spawning(world_size=2),
    FakeResult(trial=FAKE, requests=(512, 1024, -2), blocks="12 Block"),
    RecordedResult(reason="not CUDA"),
    Answered(text="{}"),
    PairsResult(ranks=(RankPairs(rank=1, compute_s=(0.1,), step_s=(0.2,), outcome="ok"),)),
    Progress(phase="timing", batch_size=16, num_steps=4, step_s=0.5),
    Result(
        trial=trial_of(16, purpose="tail"),
        steps=(StepSample(step_s=0.1, input_wait_s=0.0, num_samples=16),),
    ),
    Raised(kind="ValueError", text="line\nline", traceback="ünïcode", out_of_memory=False),
    Ended(exit_code=2, num_steps=3, num_fetches=9, num_loaders=2),
    CannotSteer(reason="a reason", remedy="a remedy", usage=True),
    Touched(files=(FileTouched(path="a", action="save (not written)"),)),
]
TO_WORKER = [
    GoOn(),
    RunFake(batch_size=64, variant=Variant(bf16=True), for_gpu=True),
    RunRecorded(batch_size=64, path="/run/snapshot.pickle"),
    Ask(question="{}"),
    RunPairs(batch_size=16, time_limit_s=2.5),
    RunTrial(
        request=TrialRequest(batch_size=16, kind="timed", purpose="confirm", fresh_process=True),
        ordinal=4,
        precision=0.02,
        min_sample_s=0.001,
        time_limit_s=9.0,
    ),
    WorkOrder(
        script="train.py",
        arguments=("--größe", "1\n2"),
        module=False,
        worker=0,
        device="auto",
        memory_limit_bytes=None,
        data_limit_bytes=10,
        run_folder="/a",
        scratch_folder="/b",
        loader=None,
        batch_cap=8,
        profile_schedule=(0, 1, 3),
        with_stack=False,
    ),
]


@pytest.fixture
def pair():
    """Two connected channels."""
    one_read, two_write = os.pipe()
    two_read, one_write = os.pipe()
    first, second = Channel(one_read, one_write), Channel(two_read, two_write)
    yield first, second
    first.close()
    second.close()


class TestRoundTrip:
    @pytest.mark.parametrize(
        ("examples", "decode", "kinds"),
        [(FROM_WORKER, decode_from_worker, FromWorker), (TO_WORKER, decode_to_worker, ToWorker)],
        ids=["from worker", "to worker"],
    )
    def test_every_message_arrives(self, pair, examples, decode, kinds):
        assert {type(message) for message in examples} == set(get_args(kinds))
        for message in examples:
            pair[0].send(message)
            assert decode(pair[1].receive_line(1)) == message

    def test_names_that_are_no_unicode(self, pair):
        """A file name of any bytes reaches Python with lone surrogates."""
        pair[0].send(Touched(files=(FileTouched(path="a\udcff.txt", action="write"),)))
        message = decode_from_worker(pair[1].receive_line(1))
        assert message == Touched(files=(FileTouched(path="a?.txt", action="write"),))

    def test_larger_than_the_pipe(self, pair):
        """A message of several pipe buffers is written and read in pieces."""
        message = Raised(kind="E", text="x" * 1_000_000, traceback="", out_of_memory=False)
        writer = threading.Thread(target=pair[0].send, args=(message,))
        writer.start()
        line = pair[1].receive_line(60)
        writer.join()
        assert decode_from_worker(line) == message

    def test_threads_do_not_mix_their_lines(self, pair):
        def send(number):
            for _ in range(20):
                pair[0].send(Progress(phase="timing", num_steps=number, batch_size=10**15))

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        seen = [decode_from_worker(pair[1].receive_line(60)).num_steps for _ in range(80)]
        for thread in threads:
            thread.join()
        assert sorted(seen) == sorted(list(range(4)) * 20)


class TestGarbage:
    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"Epoch 1: loss 0.5",
            b"{}",
            b'{"type": "Unknown"}',
            b'{"type": "Progress"}',
            b'{"type": "Progress", "phase": "sleeping"}',
            b"[1, 2",
            b"\xff\xfe\x00",
            b'{"type":"Raised","kind":"\xff","text":"","traceback":"","out_of_memory":false}',
        ],
    )
    def test_a_line_that_is_no_message(self, line):
        assert decode_from_worker(line) is None

    def test_a_message_for_the_other_side(self, pair):
        pair[0].send(TO_WORKER[0])
        assert decode_from_worker(pair[1].receive_line(1)) is None


class TestClosed:
    def test_writer_is_gone(self, pair):
        """What was sent before still arrives, a line that was cut does not."""
        pair[0].send(FROM_WORKER[2])
        os.write(pair[0]._write_fd, b'{"type": "Prog')
        os.close(pair[0]._write_fd)
        assert decode_from_worker(pair[1].receive_line(1)) == FROM_WORKER[2]
        with pytest.raises(ChannelClosedError):
            pair[1].receive_line(1)

    def test_reader_is_gone(self, pair):
        os.close(pair[1]._read_fd)
        with pytest.raises(ChannelClosedError):
            pair[0].send(FROM_WORKER[2])

    def test_silence(self, pair):
        assert pair[1].receive_line(0.0) is None
        os.write(pair[0]._write_fd, b"half a li")
        assert pair[1].receive_line(0.01) is None
        os.write(pair[0]._write_fd, b"ne\n")
        assert pair[1].receive_line(1) == b"half a line"

    def test_a_forked_child_writes_nothing(self, pair):
        pair[0]._pid = os.getpid() + 1  # as if the process were another
        pair[0].send(FROM_WORKER[2])
        assert pair[1].receive_line(0.0) is None

    def test_closed_again(self, pair):
        """Whoever got the numbers of its descriptors meanwhile keeps them."""
        pair[0].close()
        others = os.pipe()
        pair[0].close()
        for other in others:
            os.close(other)
        with pytest.raises(ChannelClosedError):
            pair[1].receive_line(1)
