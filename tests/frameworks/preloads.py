"""What processes have before a test's command or script runs in a fork of them.

Importing a framework takes more time than most of what these tests ask of it. Those that look at
how processes start still start them; see ../end_to_end/preload_server.py.
"""

from ..end_to_end.preloaded import Preload

LIGHTNING = Preload(("lightning",))
HUGGING_FACE = Preload(("transformers.trainer", "accelerate", "datasets", "peft", "trl"))
KERAS = {
    backend: Preload(
        ("keras", "tensorflow"), (("KERAS_BACKEND", backend), ("TF_CPP_MIN_LOG_LEVEL", "3"))
    )
    for backend in ("torch", "tensorflow", "jax")
}
"""By backend. None of them was used: TensorFlow and JAX start their threads when they are.

`keras.utils.set_random_seed` imports TensorFlow whatever the backend.
"""
