"""The profiling callback in Keras 3, on the backend that KERAS_BACKEND names.

KERAS_BACKEND=torch python examples/callback_keras.py
batchadvisor advise runs/callback_keras
"""

import argparse

import keras
import numpy as np
from batchadvisor.callback import KerasCallback

parser = argparse.ArgumentParser()
parser.add_argument("--logdir", default="runs/callback_keras")
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).normal(size=(5000, 64)).astype("float32")
y = (x[:, 0] * x[:, 1] > 0).astype("int32")
model = keras.Sequential(
    [keras.layers.Dense(512, activation="relu"), keras.layers.Dense(2, activation="softmax")]
)
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(
    x,
    y,
    batch_size=32,
    epochs=args.epochs,
    verbose=0,
    callbacks=[KerasCallback(logdir=args.logdir)],
)
