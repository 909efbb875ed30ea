"""Runs Keras 3 on the backend of KERAS_BACKEND: `python tails_keras.py RANK FOLDER CASE...`."""

import json
import os
import sys
import time
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("KERAS_BACKEND") == "jax":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import keras  # noqa: E402
import numpy as np  # noqa: E402

REPLICAS = 4


def data_of(num_samples):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_samples, 3)).astype("float32")
    return x, x.sum(1, keepdims=True)


def model_of(*, norm=True, synchronized=False, rate=0.01):
    layers = [keras.layers.Input((3,)), keras.layers.Dense(4)]
    if norm:
        options = {"synchronized": True} if synchronized else {}
        layers.append(keras.layers.BatchNormalization(momentum=0.9, **options))
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(rate), loss="mse")
    return model


def one_sample():
    """The moving variance before and after an epoch whose only batch holds one sample."""
    keras.utils.set_random_seed(0)
    model = model_of(rate=0.0)
    norm = model.layers[1]
    before = np.array(norm.moving_variance)
    x, y = data_of(1)
    model.fit(x, y, batch_size=4, epochs=1, verbose=0)
    return {"ratio": (np.array(norm.moving_variance) / before).tolist()}


def distribution():
    try:
        keras.distribution.DataParallel()
    except AttributeError as error:
        return str(error)
    return "made"


def devices():
    import tensorflow as tf

    if not tf.config.list_logical_devices("CPU") or len(tf.config.list_logical_devices("CPU")) < 2:
        raise RuntimeError("logical devices come too late")
    return [f"CPU:{index}" for index in range(REPLICAS)]


def logical():
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(REPLICAS)]
    )


def mirrored():
    """What an epoch of 8 + tail samples does on four replicas, B = 8."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(devices())
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = model_of()
    fresh = model.get_weights()
    results = {}
    for tail in (1, 2, 3, 4, 5, 7):
        model.set_weights(fresh)
        x, y = data_of(8 + tail)
        losses = model.fit(x, y, batch_size=8, epochs=1, verbose=0, shuffle=False).history["loss"]
        finite = [bool(np.isfinite(weight).all()) for weight in model.get_weights()]
        results[tail] = {"loss_finite": bool(np.isfinite(losses[0])), "weights_finite": all(finite)}
    return results


def mirrored_fixed():
    """Whether the weights are finite after an epoch of 9 samples with drop_remainder=True."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(devices())
    with strategy.scope():
        model = model_of()
    data = tf.data.Dataset.from_tensor_slices(data_of(9)).batch(8, drop_remainder=True)
    model.fit(data, epochs=1, verbose=0)
    return all(bool(np.isfinite(weight).all()) for weight in model.get_weights())


def synchronized(*tails):
    """An epoch of 8 + tail samples with synchronised statistics; only the last tail may fail."""
    import tensorflow as tf

    results = {}
    strategy = tf.distribute.MirroredStrategy(devices())
    for tail in tails:
        with strategy.scope():
            model = model_of(synchronized=True)
        try:
            model.fit(*data_of(8 + int(tail)), batch_size=8, epochs=1, verbose=0)
            results[tail] = all(bool(np.isfinite(weight).all()) for weight in model.get_weights())
        except Exception as error:  # noqa: BLE001
            results[tail] = f"{type(error).__name__}: {error}"[:300]
    return results


def mirrored_scale():
    """The last step without BatchNorm, of four replicas over that of one, by tail."""
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    with tf.distribute.MirroredStrategy(devices()).scope():
        models = [model_of(norm=False, rate=1e-3)]
    models.append(model_of(norm=False, rate=1e-3))
    fresh = models[0].get_weights()
    ratios = {}
    for tail in (1, 2, 4, 5):
        x, y = data_of(8 + tail)
        x[8:], y[8:] = x[8], y[8]  # alike, so that a mean of means is the mean
        mine, exact = (last_step(model, fresh, x, y) for model in models)
        ratios[tail] = float((mine @ exact) / (exact @ exact))
    return ratios


def last_step(model, fresh, x, y):
    """The change of all weights in the last step of an epoch that begins with `fresh` ones."""
    model.set_weights(fresh)
    weights = [np.concatenate([weight.ravel() for weight in fresh])]
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs=None: weights.append(
            np.concatenate([np.array(weight).ravel() for weight in model.get_weights()])
        )
    )
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False, callbacks=[keep])
    return weights[-1] - weights[-2]


def mirrored_first(*pipelines):
    """The errors of first batches, `samples/size` each. An abort is the end of collectives in a
    process, so only the last one may fail.
    """
    import tensorflow as tf

    errors = {}
    for name in pipelines:
        num_samples, size = map(int, name.split("/"))
        strategy = tf.distribute.MirroredStrategy(devices())
        with strategy.scope():
            model = model_of()
        try:
            model.fit(*data_of(num_samples), batch_size=size, verbose=0)
            errors[name] = ""
        except Exception as error:  # noqa: BLE001  # its kind is what is looked at
            errors[name] = f"{type(error).__name__}: {error}"
    return errors


def multi_worker():
    """The error of fit under MultiWorkerMirroredStrategy, as TF_CONFIG has the workers."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    try:
        with strategy.scope():
            model = model_of(norm=False)
        model.fit(*data_of(16), batch_size=8, verbose=0)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def indivisible():
    """The error of an epoch on four devices of JAX, by samples; B = 8."""
    import jax

    keras.distribution.set_distribution(
        keras.distribution.DataParallel(devices=[f"cpu:{index}" for index in range(REPLICAS)])
    )
    results = {"devices": len(jax.devices())}
    for num_samples in (9, 12, 16, 18):
        model = model_of(norm=False)
        try:
            model.fit(*data_of(num_samples), batch_size=8, verbose=0)
            results[num_samples] = ""
        except Exception as error:  # noqa: BLE001
            results[num_samples] = f"{type(error).__name__}: {error}"
    return results


def below_one_batch():
    """The error of an epoch of one step on four devices of JAX, by samples; B = 33."""
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(devices=[f"cpu:{index}" for index in range(REPLICAS)])
    )
    errors = {}
    for num_samples in (12, 13):
        try:
            model_of(norm=False).fit(*data_of(num_samples), batch_size=33, verbose=0)
            errors[num_samples] = ""
        except Exception as error:  # noqa: BLE001
            errors[num_samples] = f"{type(error).__name__}: {error}"
    return errors


def compiled():
    """Compilations of a jitted step over batches of 8, 8, 5 and 3."""
    import jax
    import jax.numpy as jnp

    traced = []

    @jax.jit
    def step(batch):
        traced.append(batch.shape[0])
        return (batch * 2).sum(0)

    times = []
    for length in (8, 8, 5, 3):
        start = time.perf_counter()
        step(jnp.ones((length, 4))).block_until_ready()
        times.append(time.perf_counter() - start)
    return {"traced": traced, "times_s": times}


CASES = {
    case.__name__: case
    for case in (
        one_sample, distribution, mirrored, mirrored_fixed, synchronized, mirrored_scale,
        mirrored_first, multi_worker, indivisible, below_one_batch, compiled,
    )
}  # fmt: skip


def join_workers(rank):
    """TF_CONFIG for the workers of this host, one a process."""
    port, world = int(os.environ["MASTER_PORT"]), int(os.environ["WORLD_SIZE"])
    workers = [f"127.0.0.1:{port + index}" for index in range(world)]
    task = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})


def main():
    rank, folder, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    if names == ["multi_worker"]:
        join_workers(int(rank))
    elif keras.backend.backend() == "tensorflow":
        logical()
    seen = {}
    for name in names:
        case, _, given = name.partition(":")
        seen[name] = CASES[case](*given.split(",") if given else ())
        (folder / f"{rank}.json").write_text(json.dumps(seen))
    os._exit(0)


if __name__ == "__main__":
    main()
