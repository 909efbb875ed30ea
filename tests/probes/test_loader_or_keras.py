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


@pytest.fixture
def doors():
    loader, keras = Door("loader"), Door("keras")
    return loader, keras, LoaderOrKerasDoor(loader, keras)


def test_the_loader_door_until_fit_is_called(doors):
    loader, keras, door = doors
    door.ask(8)
    door.stepped("SGD")
    assert loader.calls == [("ask", 8), ("stepped", "SGD")]
    assert keras.calls == []
    assert door.parameters() == ["loader"]
    assert door.next_batch(Handle(), iter("a"), next) == "the loader door's"


def test_the_keras_door_from_then_on(doors):
    """Keras makes its own steps: those of torch, and the batches it fetches, are not counted."""
    loader, keras, door = doors
    keras.fitted = True
    door.ask(8)
    door.resize(16)
    door.stepped("SGD")
    assert keras.calls == [("ask", 8), ("resize", 16)]
    assert loader.calls == []
    assert door.parameters() == ["keras"]
    assert door.next_batch(Handle(), iter("a"), next) == "a"


def test_both_report_to_the_listener(doors):
    loader, keras, door = doors
    door.report_to("the listener")
    assert loader.calls == keras.calls == [("report to", "the listener")]
