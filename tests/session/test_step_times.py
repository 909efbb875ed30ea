"""`estimate --calibrate` with made-up records: no run on a real GPU was at hand."""

import msgspec
import pytest
from batchadvisor.errors import RunError, UsageError
from batchadvisor.features.estimate.fit.gpu_specs import SPECS
from batchadvisor.features.estimate.records import FittedGpu, Forecast
from batchadvisor.features.estimate.step_times import StepTimes, calibration_record
from batchadvisor.probes.process.messages import FakeResult
from batchadvisor.records import FakeTrial, OpWork, ScriptInfo, Variant
from batchadvisor.session.setup.options import RunOptions, digest_of

from ..on_paper import record_of, trial_of

NAME = "NVIDIA A100-SXM4-80GB"


def timed(size, seconds):
    return trial_of(size, seconds, half_width=0.0)


def record(*trials, name=NAME, kind="cuda", **changes):
    made = record_of(trials, **changes)
    if made.device is None:
        return made
    device = msgspec.structs.replace(made.device, kind=kind, name=name)
    return msgspec.structs.replace(made, device=device)


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Of a record as it lies on disk."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass")

    def load(made):
        path = tmp_path / "record.json"
        path.write_bytes(msgspec.json.encode(made))
        return calibration_record(path, RunOptions(script="train.py"))

    return load


def test_a_run_of_the_same_text_on_one_gpu_is_taken(read):
    for digest in (None, digest_of(RunOptions(script="train.py"))):
        script = ScriptInfo(path="elsewhere/train.py", digest=digest)
        assert read(record(timed(8, 0.1), script=script)).device.name == NAME


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (record(timed(8, 0.1), kind="cpu", name="EPYC"), "is a run on a CPU"),
        (record(timed(8, 0.1), device=None), "is a run on no device"),
        (record(timed(8, 0.1), script=ScriptInfo(path="other.py")), "arguments: other.py"),
        (record(timed(8, 0.1), script=ScriptInfo(path="train.py", digest="0")), "another text"),
        (
            record(timed(8, 0.1), script=ScriptInfo(path="train.py", arguments=("-x",))),
            "other arguments: train.py -x",
        ),
        (record(timed(8, 0.1), name="NVIDIA Q1"), "no bandwidth of NVIDIA Q1"),
        (record(), "has no timed steps"),
    ],
)
def test_others_are_refused(read, made, words):
    with pytest.raises(UsageError, match=words):
        read(made)


def made_step(size):
    nothing = dict.fromkeys(
        ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "input_bytes"), 0
    )
    trial = FakeTrial(batch_size=size, peak_bytes=size, **nothing)
    work = (OpWork("", 0, 2_039_000_000), OpWork("", 0, 20_390_000 * size))
    return FakeResult(trial=trial, work=work)


def forecast(sizes):
    return Forecast(
        variant=Variant(),
        trials=tuple(made_step(size).trial for size in sizes),
        fixed_bytes=0,
        sample_bytes=1,
        gpus=(FittedGpu(name="A100-80GB", memory_bytes=1, low=1000, high=1100),),
    )


def times(run):
    collected = StepTimes([("A100-80GB", 1)], 8, run)
    for size in (2, 8, 32, 2048):
        collected.note(Variant(), size, made_step(size))
    return collected


def test_bounds_at_the_own_size_and_at_the_largest():
    bounds = times(None).bounds([forecast((2, 8, 32, 2048))])
    assert [bound.batch_size for bound in bounds] == [8, 1000]
    assert [bound.seconds for bound in bounds] == pytest.approx([1.08e-3, 11e-3])
    assert times(None).calibration(forecast((2, 8))) is None


def test_the_factor_of_a_run():
    run = record(timed(8, 2 * 1.08e-3), timed(512, 2 * 6.12e-3))
    answer = times(run).calibration(forecast((2, 8, 32, 2048)))
    assert answer.factor == pytest.approx(2)
    assert 256 <= answer.knees["A100-80GB"] <= 512
    assert SPECS["A100-80GB"].name == answer.device


def test_a_run_of_other_sizes():
    with pytest.raises(RunError, match="says nothing of these steps"):
        times(record(timed(4096, 1.0))).calibration(forecast((2, 8)))


@pytest.mark.parametrize(
    ("work", "alike"),
    [
        ((OpWork("float16", 20, 2), OpWork("float16", 20, 2)), True),
        ((OpWork("float32", 20, 4), OpWork("bfloat16", 20, 2)), False),
    ],
)
def test_a_variant_that_does_the_same_work_counts_as_the_script_itself(work, alike):
    times, variants = StepTimes([], 8, None), (Variant(), Variant(bf16=True))
    for variant, each in zip(variants, work, strict=True):
        times.note(variant, 2, msgspec.structs.replace(made_step(2), work=(each,)))
    assert times.are_alike(*variants[::-1], 2) is alike
