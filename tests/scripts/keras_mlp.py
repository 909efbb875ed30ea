"""Keras 3 on whatever backend KERAS_BACKEND names: arrays, and a call of fit."""

import keras
import numpy as np


def main():
    keras.utils.set_random_seed(3)
    x = np.random.default_rng(3).normal(size=(2010, 20)).astype("float32")
    y = (x.sum(1) > 0).astype("int64")
    model = keras.Sequential(
        [
            keras.Input((20,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(2),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.002), loss=loss, metrics=["accuracy"])
    saved = keras.callbacks.ModelCheckpoint("saved.keras")
    model.fit(x, y, batch_size=32, epochs=3, validation_split=0.1, callbacks=[saved])
    open("afterwards.txt", "w").close()


if __name__ == "__main__":
    main()
