"""Model.fit of Keras 3 with our sizes, on its three backends."""

from pathlib import Path

import pytest

from ..end_to_end.driver import SCRIPTS, run, run_preloaded
from ..needs import framework_of_scripts
from .preloads import KERAS
from .runs import OPTIONS, SIZES, probed

framework_of_scripts("keras")
pytestmark = pytest.mark.frameworks
MODULES = {"torch": "torch", "tensorflow": "tensorflow", "jax": "jax"}


@pytest.fixture(params=MODULES)
def backend(request, monkeypatch):
    framework_of_scripts(MODULES[request.param])
    monkeypatch.setenv("KERAS_BACKEND", request.param)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    return request.param


def test_fit(tmp_path, backend):
    done = probed("keras_mlp.py", tmp_path, preload=KERAS[backend])
    assert done.code == 0, done
    assert done.left == []
    discovery = done.record.discovery
    assert discovery.door == "keras"
    assert (discovery.native_batch_size, discovery.micro_batches) == (32, 1)
    assert discovery.primary.num_samples == 2010 - 201  # validation_split
    assert discovery.primary.sampler == f"Keras on {backend}"
    assert discovery.norm_layers.batch_norm == 1
    assert discovery.num_parameters == 20 * 64 + 64 + 2 * 64 + 64 * 2 + 2
    assert [optimizer.name for optimizer in discovery.optimizers] == ["Adam"]
    assert discovery.optimizers[0].learning_rate == pytest.approx(0.002)
    trials = [trial for trial in done.record.trials if trial.purpose == "search"]
    assert [(trial.batch_size, trial.outcome) for trial in trials] == [
        (size, "ok") for size in SIZES
    ]
    for trial in trials:
        assert trial.samples_per_s.median == pytest.approx(trial.batch_size / trial.step_s.median)
        assert trial.memory.peak_bytes > 100 << 20
        assert trial.input_wait_s is None
    assert done.advice.recommended.batch_size == 64
    assert done.advice.change == "keras_mlp.py:22  batch_size=32 → batch_size=64"
    # The script's callbacks, and what follows fit, did not run.
    assert {path.name for path in tmp_path.iterdir()} == {"keras_mlp.py", "out"}


@pytest.mark.slow
def test_the_script_of_the_page_at_default_options(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    script = Path(__file__).parents[2] / "bench/public/keras_mnist.py"
    (tmp_path / "keras_mnist.py").write_text(script.read_text())
    done = run_preloaded("run", "keras_mnist.py", folder=tmp_path, preload=KERAS["torch"])
    assert done.code == 0, done
    assert done.left == []
    record = done.record
    assert (record.discovery.door, record.discovery.native_batch_size) == ("keras", 128)
    assert record.faults == ()
    assert {trial.outcome for trial in record.trials} <= {"ok", "out_of_memory"}
    assert "batchadvisor itself failed" not in done.stdout + done.stderr


@pytest.mark.slow
def test_jax_on_several_devices(tmp_path, monkeypatch):
    """Four devices of the CPU share each batch: a tail that they cannot share is an error."""
    framework_of_scripts("jax")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    text = (SCRIPTS / "keras_mlp.py").read_text()
    seed = "    keras.utils.set_random_seed(3)\n"
    assert seed in text
    spread = "    keras.distribution.set_distribution(keras.distribution.DataParallel())\n"
    (tmp_path / "keras_mlp.py").write_text(text.replace(seed, seed + spread))
    words = ("--sizes", "8,64,65", "--budget", "60s", "keras_mlp.py")
    done = run_preloaded("run", *OPTIONS, *words, folder=tmp_path, preload=KERAS["jax"])
    assert done.code == 0, done
    discovery = done.record.discovery
    assert (discovery.primary.sampler, discovery.num_replicas) == ("Keras on jax, DataParallel", 4)
    outcomes = {trial.batch_size: trial for trial in done.record.trials}
    assert [outcomes[size].outcome for size in (8, 64, 65)] == ["ok", "ok", "exception"]
    assert "IndivisibleError" in outcomes[65].detail
    tail = done.advice.tail
    assert (tail.num_ranks, tail.full, tail.last_batch, tail.harmful) == (4, (16,) * 4, 17, True)
    assert all(size % 4 == 0 for size in tail.nearest_clean)
    (finding,) = [found for found in done.advice.findings if "jax.indivisible" in found.remedy]
    assert "cannot be sharded over 4 devices" in finding.message


class TestOnTorch:
    @pytest.fixture(autouse=True)
    def torch(self, monkeypatch):
        monkeypatch.setenv("KERAS_BACKEND", "torch")

    def test_a_script_without_fit(self, tmp_path):
        (tmp_path / "keras_mlp.py").write_text("import keras\nprint(keras.__version__)\n")
        done = _run(tmp_path)
        assert done.code == 1
        assert "imports Keras, and ended without a call of Model.fit" in done.error
        assert "--workload" in done.error

    def test_batches_that_fit_does_not_make(self, tmp_path):
        (tmp_path / "keras_mlp.py").write_text(
            "import keras, numpy as np\n"
            "def batches():\n"
            "    while True:\n"
            "        yield np.zeros((4, 3)), np.zeros((4, 1))\n"
            "model = keras.Sequential([keras.layers.Dense(1)])\n"
            "model.compile('sgd', 'mse')\n"
            "model.fit(batches(), steps_per_epoch=5)\n"
        )
        done = _run(tmp_path)
        assert done.code == 1
        assert "Model.fit at keras_mlp.py:7 gets its batches from generator" in done.error

    def test_its_own_size_does_not_fit(self, tmp_path):
        """The loader that Keras makes for each size is not cut as the first one was."""
        (tmp_path / "keras_mlp.py").write_text(
            "import keras, numpy as np\n"
            "class Heavy(keras.layers.Layer):\n"
            "    def compute_output_shape(self, shape):\n"
            "        return shape\n"
            "    def call(self, x):\n"
            "        if (x.shape[0] or 0) > 40:\n"
            "            raise MemoryError('too many')\n"
            "        return x\n"
            "model = keras.Sequential([keras.Input((3,)), Heavy(), keras.layers.Dense(1)])\n"
            "model.compile('sgd', 'mse', run_eagerly=True)\n"
            "model.fit(np.zeros((500, 3)), np.zeros((500, 1)), batch_size=64)\n"
        )
        words = ("--sizes", "16,64", "--budget", "60s", "keras_mlp.py")
        done = run_preloaded("run", *OPTIONS, *words, folder=tmp_path, preload=KERAS["torch"])
        assert done.code == 0, done
        outcomes = {trial.batch_size: trial.outcome for trial in done.record.trials}
        assert (outcomes[16], outcomes[64]) == ("ok", "out_of_memory")
        assert done.advice.recommended.batch_size == 16

    @pytest.mark.slow
    def test_a_torch_loader(self, tmp_path):
        """The one run here whose processes start and import Keras as a user's do."""
        (tmp_path / "keras_mlp.py").write_text(
            "import keras, torch\n"
            "from torch.utils.data import DataLoader, TensorDataset\n"
            "data = TensorDataset(torch.randn(500, 3), torch.randn(500, 1))\n"
            "model = keras.Sequential([keras.layers.Dense(1)])\n"
            "model.compile('sgd', 'mse')\n"
            "model.fit(DataLoader(data, batch_size=10), epochs=9)\n"
        )
        # Time for two processes that import Keras beside two lanes of other tests.
        words = ("--sizes", "8,64", "--budget", "40s", "keras_mlp.py")
        done = run("run", *OPTIONS, *words, folder=tmp_path)
        assert done.code == 0, done
        discovery = done.record.discovery
        assert (discovery.door, discovery.native_batch_size, discovery.primary.num_samples) == (
            "keras",
            10,
            500,
        )
        assert done.advice.recommended.batch_size == 64


def _run(folder):
    return run_preloaded("run", "-q", "keras_mlp.py", folder=folder, preload=KERAS["torch"])
