"""Two doors of one script: which of them is asked, and which hears what the script does."""

import pytest
from batchadvisor.probes.doors.loader_or_keras import LoaderOrKerasDoor


class Door:
    """Writes down what it is asked and told."""

    def __init__(self, name):
        self.name = name
        self.calls = []
        self.fitted = False

    def ask(self, batch_size, length=""):
        self.calls.append(("ask", batch_size))

    def resize(self, batch_size):
        self.calls.append(("resize", batch_size))

    def report_to(self, listener):
        self.calls.append(("report to", listener))

    def stepped(self, optimizer):
        self.calls.append(("stepped", optimizer))

    def next_batch(self, handle, iterator, native_next):
        return f"the {self.name} door's"

    def parameters(self):
        return [self.name]


class Handle:
    def fetch(self, iterator, native_next):
        return native_next(iterator)


@pytest.mark.parametrize("fitted", [False, True])
def test_one_door_is_asked_and_hears_steps(fitted):
    """Keras makes its own steps: those of torch, and the batches it fetches, are not counted."""
    loader, keras = Door("loader"), Door("keras")
    door = LoaderOrKerasDoor(loader, keras)
    keras.fitted = fitted
    door.report_to("the listener")
    door.ask(8)
    door.resize(16)
    door.stepped("SGD")
    heard, asked = ("report to", "the listener"), [("ask", 8), ("resize", 16)]
    assert loader.calls == [heard, *([] if fitted else [*asked, ("stepped", "SGD")])]
    assert keras.calls == [heard, *(asked if fitted else [])]
    assert door.parameters() == ["keras" if fitted else "loader"]
    batch = door.next_batch(Handle(), iter("a"), next)
    assert batch == ("a" if fitted else "the loader door's")
