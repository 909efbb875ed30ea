"""Executes the code of pages with Keras: `python pages_keras.py RANK FOLDER JOB...`.

PAGE_JOBS names a file with the jobs. Replicas and devices are logical ones of the CPU.
"""

import contextlib
import functools
import json
import os
import sys
import traceback
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("KERAS_BACKEND") == "jax":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import keras
import numpy as np


@functools.cache
def strategy_of(num_ranks):
    """One for all models of this process, on logical CPUs."""
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(num_ranks)]
    tf.config.set_logical_device_configuration(cpu, parts)
    return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(num_ranks)])


def scope_of(job):
    """Where the model is made."""
    if job["setup"] == "jax":
        devices = [f"cpu:{index}" for index in range(job["num_ranks"])]
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    if job["setup"] != "mirrored":
        return contextlib.nullcontext()
    return strategy_of(job["num_ranks"]).scope()


def run(job):
    """Steps of an epoch and whether all weights are finite after two epochs, with the fix."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(job["num_samples"], 3)).astype("float32")
    y = x.sum(1, keepdims=True)
    code, names = job["code"], {"keras": keras, "np": np, "x": x, "y": y}
    with scope_of(job):
        layers = [keras.layers.Input((3,)), keras.layers.Dense(4)]
        if "synchronized" in code:
            exec(f"norm = {code}", names)
            layers.append(names["norm"])
        elif job["norm"]:
            layers.append(keras.layers.BatchNormalization(momentum=0.9))
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(0.001), loss="mse")
    steps = []
    counting = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs=None: steps.append(batch)
    )
    fit = model.fit

    class Model:
        """The model that the code calls, with a counter in it."""

        def fit(self, *args, **options):
            fit(*args, **options, callbacks=[counting], epochs=2, verbose=0)

    names["model"] = Model()
    if "tf.data" in code:
        import tensorflow as tf

        exec(code, {**names, "tf": tf}, names)
        names["model"].fit(names["dataset"])
    elif "drop_remainder" in code:
        exec(code, names)
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices((x, y))
        data = data.batch(names["batch_size"], drop_remainder=names["drop_remainder"])
        names["model"].fit(data)
    elif "model.fit" in code:
        exec(code, names)
    else:
        if "batch_size" in code:
            exec(code, names)
        names["model"].fit(x, y, batch_size=names.get("batch_size", job["batch_size"]))
    finite = all(bool(np.isfinite(weight).all()) for weight in model.get_weights())
    return {"steps": len(steps) // 2, "finite": finite}


def in_a_fork(jobs, file):
    """Runs jobs in a process that has the backend, and has used none of it."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return json.loads(file.read_text()) if file.exists() else {}
    try:
        file.write_text(json.dumps({name: run(job) for name, job in jobs.items()}))
    except BaseException:  # noqa: BLE001  the test shows it
        traceback.print_exc()
    finally:
        os._exit(0)


def main():
    """Jobs without replicas go together; collectives of several models hang or abort."""
    folder, wanted = Path(sys.argv[2]), sys.argv[3:]
    jobs = json.loads(Path(os.environ["PAGE_JOBS"]).read_text())
    alone = [{name: jobs[name]} for name in wanted if jobs[name]["setup"] == "mirrored"]
    plain = {name: jobs[name] for name in wanted if jobs[name]["setup"] == "keras-tensorflow"}
    seen = {}
    for number, group in enumerate([*alone, *([plain] if plain else [])]):
        seen |= in_a_fork(group, folder / f"group-{number}.json")
    for name in wanted:
        if jobs[name]["setup"] == "jax":  # has threads from its import on, and cannot fork
            seen[name] = run(jobs[name])
    (folder / "0.json").write_text(json.dumps(seen))
    os._exit(0)


if __name__ == "__main__":
    main()
