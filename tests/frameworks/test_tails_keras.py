"""Keras 3 on its three backends, against the engine; replicas are logical CPUs."""

from pathlib import Path

import batchadvisor
import pytest
from batchadvisor import ModelFacts

from ..needs import framework_of_scripts
from ..tails.launch import launch
from ..tails.said import case_of
from .preloads import KERAS

for _name in ("keras", "tensorflow", "jax"):
    framework_of_scripts(_name)

pytestmark = pytest.mark.frameworks
SCRIPT = Path(__file__).with_name("tails_keras.py")
NORM = ModelFacts(batch_norm=1, batch_norm_values=1)


def backend(factory, name, *cases):
    folder = factory.mktemp(name)
    return launch(
        SCRIPT, folder, *cases, world=1, preload=KERAS[name], KERAS_BACKEND=name,
        CUDA_VISIBLE_DEVICES="",
    )[0]  # fmt: skip


@pytest.fixture(scope="module")
def tensorflow(tmp_path_factory):
    """What TensorFlow did on four logical CPUs."""
    return backend(tmp_path_factory, "tensorflow", "one_sample", "mirrored", "mirrored_fixed")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Models of another shape: collectives of several in one process abort with a mismatch."""
    return backend(tmp_path_factory, "tensorflow", "mirrored_scale", "multi_worker")


@pytest.fixture(scope="module")
def jax(tmp_path_factory):
    """What JAX did on four host devices."""
    return backend(
        tmp_path_factory, "jax", "one_sample", "compiled", "indivisible", "below_one_batch"
    )


@pytest.fixture(scope="module")
def torch(tmp_path_factory):
    """What Keras on torch did."""
    return backend(tmp_path_factory, "torch", "one_sample", "distribution")


def mirrored_report(num_samples, size=8, model=NORM):
    return batchadvisor.tails(
        num_samples=num_samples, batch_size=size, num_ranks=4, setup="mirrored", model=model
    )


@pytest.mark.case(
    "keras.one-sample", "a batch of one on torch, tensorflow and jax", "keras", "tensorflow-cpu",
    "jax", "torch",
)  # fmt: skip
@pytest.mark.parametrize("name", ["tensorflow", "jax", "torch"])
def test_one_sample(request, name):
    ratio = request.getfixturevalue(name)["one_sample"]["ratio"]
    assert ratio == pytest.approx([0.9] * 4, rel=1e-5)
    report = batchadvisor.tails(num_samples=9, batch_size=4, setup=f"keras-{name}", model=NORM)
    assert report.layout.last == (1,)
    assert "without an error" in case_of(report, "keras.one-sample").message
    assert case_of(report, "norm.one-value") is None
    two = batchadvisor.tails(num_samples=10, batch_size=4, setup=f"keras-{name}", model=NORM)
    assert case_of(two, "keras.one-sample") is None


@pytest.mark.case(
    "mirrored.empty-replica-nan", "tails 1, 2, 3, 4, 5 and 7 of 8 on four logical CPUs", "keras",
    "tensorflow-cpu",
)  # fmt: skip
def test_empty_replica_nan(tensorflow):
    for tail, real in tensorflow["mirrored"].items():
        report = mirrored_report(8 + int(tail))
        finding = case_of(report, "mirrored.empty-replica-nan")
        assert (finding is not None) is (not real["weights_finite"]), tail
        assert (0 in report.layout.last) is (finding is not None)
    broken = [result for result in tensorflow["mirrored"].values() if not result["weights_finite"]]
    assert len(broken) == 4
    assert all(result["loss_finite"] for result in broken)


@pytest.mark.case(
    "mirrored.empty-replica-nan", "both remedies keep the weights finite", "keras",
    "tensorflow-cpu",
)  # fmt: skip
def test_empty_replica_fixed(tensorflow, tmp_path_factory):
    assert tensorflow["mirrored_fixed"] is True
    alone = backend(tmp_path_factory, "tensorflow", "synchronized:1")
    assert alone["synchronized:1"] == {"1": True}
    finding = case_of(mirrored_report(9), "mirrored.empty-replica-nan")
    code = "\n".join(fixe.snippet for fixe in finding.fixes)
    assert "drop_remainder=True" in code
    assert "synchronized=True" in code


@pytest.mark.case(
    "mirrored.empty-replica-scale", "the last step of four replicas over that of one", "keras",
    "tensorflow-cpu",
)  # fmt: skip
def test_empty_replica_scale(plain):
    for tail, real in plain["mirrored_scale"].items():
        report = mirrored_report(8 + int(tail), model=ModelFacts(batch_norm=0))
        finding = case_of(report, "mirrored.empty-replica-scale")
        predicted = finding.evidence[0].value if finding is not None else 1.0
        assert predicted == pytest.approx(real, rel=0.02), tail
    assert case_of(mirrored_report(9), "mirrored.empty-replica-scale") is None


@pytest.mark.case(
    "mirrored.first-batch", "first batches of 8, 9 and 5 samples", "keras", "tensorflow-cpu"
)
@pytest.mark.parametrize("pipelines", ["16/8,18/9", "5/8"])
def test_first_batch(tmp_path_factory, pipelines):
    name = f"mirrored_first:{pipelines}"
    for pipeline, error in backend(tmp_path_factory, "tensorflow", name)[name].items():
        finding = case_of(mirrored_report(*map(int, pipeline.split("/"))), "mirrored.first-batch")
        assert (finding is not None) is bool(error), (pipeline, error)
        if error:
            assert error.startswith("InvalidArgumentError")
            assert "Inputs to operation AddN" in error


@pytest.mark.case("multiworker.fit", "fit of two workers", "keras", "tensorflow-cpu")
def test_multi_worker(plain, tmp_path):
    seen = launch(
        SCRIPT, tmp_path, "multi_worker", preload=KERAS["tensorflow"], KERAS_BACKEND="tensorflow"
    )
    assert all("PerReplica" in rank["multi_worker"] for rank in seen), seen
    report = batchadvisor.tails(
        num_samples=16, batch_size=8, num_ranks=2, setup="multi-worker-mirrored"
    )
    assert report.layout is None
    assert case_of(report, "multiworker.fit").severity == "error"
    assert plain["multi_worker"] == ""
    alone = batchadvisor.tails(num_samples=16, batch_size=8, setup="multi-worker-mirrored")
    assert alone.findings == ()


def test_below_one_batch(jax):
    """12 samples in batches of 33 on four devices are one step of 12, which they share."""
    for num_samples, error in jax["below_one_batch"].items():
        report = batchadvisor.tails(
            num_samples=int(num_samples), batch_size=33, num_ranks=4, setup="jax"
        )
        finding = case_of(report, "jax.indivisible")
        assert (finding is not None) is bool(error), (num_samples, error)
    assert not jax["below_one_batch"]["12"]


@pytest.mark.case(
    "jax.indivisible", "epochs of 9, 12, 16 and 18 samples on four devices", "jax", "keras"
)
def test_indivisible(jax):
    real = dict(jax["indivisible"])
    assert real.pop("devices") == 4
    for num_samples, error in real.items():
        report = batchadvisor.tails(
            num_samples=int(num_samples), batch_size=8, num_ranks=4, setup="jax"
        )
        finding = case_of(report, "jax.indivisible")
        assert (finding is not None) is bool(error), (num_samples, error)
        assert not error or error.startswith("IndivisibleError")


@pytest.mark.case("compiled.shape", "traces of a jitted step for two tails", "jax")
def test_compiled(jax):
    assert jax["compiled"]["traced"] == [8, 5, 3]
    report = batchadvisor.tails(
        num_samples=13, batch_size=8, setup="keras-jax", model=ModelFacts(compiled="static")
    )
    assert "each new size" in case_of(report, "compiled.shape").message


@pytest.mark.case("keras-torch.distribution", "keras.distribution on torch", "keras", "torch")
def test_no_distribution(torch):
    assert "NoneType" in torch["distribution"]
    report = batchadvisor.tails(num_samples=16, batch_size=8, num_ranks=2, setup="keras-torch")
    assert case_of(report, "keras-torch.distribution") is not None
    on_torch = batchadvisor.tails(num_samples=16, batch_size=8, setup="keras-torch")
    assert on_torch.findings == ()
