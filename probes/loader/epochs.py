"""Whether a loader's epochs end where the script expects it, and how far the present one is.

While sizes are measured a loader yields for ever. A loop that counts its batches against
`len(loader)` does not go on beyond it: it divides by the batches that are left, or looks up a list
that is as long. Its epochs end, and windows go on in the next.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from torch.utils.data import IterableDataset

_GIVEN = "_batchadvisor_given"
"""Attribute of the script's iterator: batches that it gave in this epoch."""
_TRAINS = "_batchadvisor_trains"
"""Another: that a batch of it was fetched for training."""
_MADE = "_batchadvisor_made_s"
"""Another: when it was made."""
AT_THE_END = 4
"""A script that fails at most so many batches beyond an epoch's end fails because of the end;
batches fetched ahead of their steps are among them."""


class Epochs:
    """The epochs of one loader.

    Attributes:
        end: they end after as many batches as the script's own have.
        start_s: seconds from asking for the loader's first iterator to its first batch: so long its
            processes took to start, and one of them to make a batch of the script's own size.
    """

    def __init__(self, *, end: bool) -> None:
        self.end = end
        self._length: int | None = None
        self._has_looked = False
        self._given = 0
        self._has_ended = False
        self._usual: dict[int | None, int] = {}
        self._stepped: set[int | None] = set()
        self._num_fewer = 0
        self.start_s: float | None = None
        self._starts = False

    def asked(self, iterator: Any) -> None:
        """The script asks this iterator for a batch, the first one if it was just made."""
        made_s = iterator.__dict__.pop(_MADE, None)
        self._starts = made_s is not None and self.start_s is None
        if self._starts:
            self.start_s = time.perf_counter() - made_s

    def waited(self, seconds: float) -> None:
        """It gave one of the script's own after so long."""
        if self._starts and self.start_s is not None:
            self.start_s += seconds
        self._starts = False

    def look(self, loader: Any) -> None:
        """Takes the length of an epoch, while the loader has the script's own size.

        That of a stream only once the script asked the loader for it: it may count a file for it,
        and torch warns of streams that go beyond a length that was asked for.
        """
        if self._length is not None or loader is None:
            return
        if isinstance(getattr(loader, "dataset", None), IterableDataset):
            self._length = told_length(loader)
        elif not self._has_looked:
            self._has_looked = True
            with contextlib.suppress(Exception):  # of a sampler of the script's own
                self._length = len(loader)

    def go_on_as(self, other: Epochs) -> None:
        """The loader takes the place of another, made for an epoch of its own."""
        self.end, self._length, self.start_s = other.end, other._length, other.start_s
        self._has_ended = other._has_ended
        self._usual, self._stepped = other._usual, other._stepped

    def is_over(self, iterator: Any) -> bool:
        """Whether the script's epoch ends here; then its next one begins."""
        given = iterator.__dict__.get(_GIVEN, 0)
        if not self.end or not self._length or given < self._length:
            return False
        began_anew(iterator)
        self._has_ended = True
        return True

    def is_seen(self, iterator: Any, times: float, *, training: bool) -> bool:
        """Whether a pass that nothing is trained on, such as one for the accuracy on the training
        data, has had as many samples as an epoch: it would have no end.

        Args:
            times: samples of a batch, in those of the script's own.
            training: whether the batch that is asked for may be trained on.
        """
        if training:
            iterator.__dict__[_TRAINS] = True
        if not self._length or self.trains_on(iterator):
            return False
        return bool(iterator.__dict__.get(_GIVEN, 0) * times >= self._length)

    def trains_on(self, iterator: Any) -> bool:
        """Whether a batch of this pass was asked for that may be trained on."""
        return bool(iterator.__dict__.get(_TRAINS))

    def gave(self, iterator: Any) -> None:
        """A batch went to the script."""
        self._given = iterator.__dict__[_GIVEN] = iterator.__dict__.get(_GIVEN, 0) + 1

    def stepped(self, asked: int | None, num_batches: int) -> None:
        """The loop made an optimizer step, on so many batches of a size.

        One that takes fewer beyond its end counts against it: its epochs end from here on. Once it
        may: a step at the end of an epoch has some batches of the usual ones.
        """
        self._stepped.add(asked)
        usual = self._usual.get(asked, num_batches)
        if not self.is_past:
            self._usual[asked] = max(usual, num_batches)
            return
        self._num_fewer = self._num_fewer + 1 if num_batches < usual else 0
        self.end = self.end or self._num_fewer > 1

    def has_stepped(self, asked: int | None) -> bool:
        """Whether a step was made on batches of this size."""
        return asked in self._stepped

    def without_step(self) -> bool:
        """No step is made on batches beyond its end: its epochs end from here on. False where that
        is no reason."""
        was_endless, self.end = not self.end, self.end or self.is_past
        return was_endless and self.end

    def begins(self) -> bool:
        """Whether this is the first fetch after an epoch that was ended; it is told once."""
        began, self._has_ended = self._has_ended, False
        return began

    @property
    def is_past(self) -> bool:
        """Whether the present epoch went on beyond its end."""
        return self._length is not None and self._given > self._length

    @property
    def just_past(self) -> bool:
        """Whether it did so a few batches ago, or had as many as some epochs then: a table of all
        steps of a training ends there."""
        return self.is_past and (self._given - 1) % (self._length or 1) < AT_THE_END


def told_length(loader: Any) -> int | None:
    """The batches of a stream, as the loader told the script that asked; `None` if it did not."""
    samples = getattr(loader, "_IterableDataset_len_called", None)
    if samples is None or loader.batch_size is None:
        return samples
    batches, rest = divmod(samples, loader.batch_size)
    return int(batches if loader.drop_last or not rest else batches + 1)


def made(iterator: Any) -> None:
    """The script made this iterator now."""
    iterator.__dict__[_MADE] = time.perf_counter()


def began_anew(iterator: Any) -> None:
    """An epoch begins with this iterator; with persistent workers it is that of the one before."""
    iterator.__dict__[_GIVEN] = 0
    iterator.__dict__.pop(_TRAINS, None)
