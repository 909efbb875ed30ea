"""Fits of Keras on the backend of KERAS_BACKEND: FOLDER; writes what happened as JSON."""

import json
import os
import sys
from pathlib import Path

if os.environ["KERAS_BACKEND"] == "jax":
    # As where it is not installed: Keras would import it, for seconds, to give it a seed as well.
    sys.modules["tensorflow"] = None

import keras
import numpy as np
from batchadvisor.callback import KerasCallback

folder = Path(sys.argv[1])
rng = np.random.default_rng(1)
X = rng.normal(size=(100, 6)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")


class Losses(keras.callbacks.Callback):
    """A callback of the user's own."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


def make(*, accumulate=None, per_call=1, scaled=False):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.layers.Dense(8, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.AdamW(1e-3, gradient_accumulation_steps=accumulate)
    if scaled:  # as `compile` does for mixed_float16
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "sparse_categorical_crossentropy", steps_per_execution=per_call)
    return model


def fit(model, *callbacks, **options):
    own = Losses()
    options = {"batch_size": 16, "epochs": 3, "verbose": 0, **options}
    model.fit(X, Y, callbacks=[own, *callbacks], **options)
    weights = [weight.tolist() for weight in model.get_weights()]
    return own.losses, weights, int(model.optimizer.iterations)


def adapter(name, **options):
    return KerasCallback(folder / name, **{"quiet": True, "profile_after": 4, **options})


results = {"plain": fit(make())[:2]}
model = make()
results["watch"] = fit(model, adapter("watch"))[:2]
results["steps"] = fit(make(accumulate=2), adapter("accumulate"))[2]
fit(make(accumulate=2, scaled=True), adapter("scaled"))
os.environ.update(RANK="1", WORLD_SIZE="2")
fit(make(), adapter("ranks"))
del os.environ["RANK"], os.environ["WORLD_SIZE"]
if keras.backend.backend() != "torch":  # the torch backend runs one step a call
    results["per_call"] = fit(make(per_call=3), adapter("per_call"))[2]
fit(model, adapter("validate"), validation_split=0.2)


class BoomError(Exception):
    pass


error = BoomError("mine")


class Raising(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 4:
            raise error


try:
    with adapter("raise") as watching:
        fit(model, Raising(), watching)
except BoomError as caught:
    results["same"] = caught is error

keras.utils.set_random_seed(3)
model = keras.Sequential([keras.layers.Dense(2, activation="softmax")])
model.compile("sgd", "sparse_categorical_crossentropy")
try:
    # Seven samples of another width in the last batches: the step itself fails.
    def batches():
        for place in range(6):
            width = 6 if place < 5 else 9
            yield np.ones((4, width), "float32"), np.zeros(4, "int32")

    model.fit(batches(), verbose=0, callbacks=[adapter("step", batch_size=4)])
except Exception as caught:  # noqa: BLE001  each backend has its own
    results["in_step"] = type(caught).__name__
results["train_function"] = "watched" in getattr(model.train_function, "__qualname__", "")
results["torch"] = "torch" in sys.modules
(folder / "found.json").write_text(json.dumps(results))
