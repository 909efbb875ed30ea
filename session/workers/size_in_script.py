"""A script whose loop no loader feeds: the place of its size, or why there is none to choose."""

from __future__ import annotations

from ...errors import BatchAdvisorError, RunError, UsageError
from ...probes.process.messages import CannotSteer
from ...probes.source.named_size import SizePlace, find_size
from ...probes.source.placeholder import command, computed_text, proposal
from ..setup.options import RunOptions

_PARTS = "A loader that draws parts of it for each step would bring one."


class SizeInScriptError(RunError):
    """No loader can be asked for sizes; the script is to be started once for each.

    Attributes:
        place: that sets the size.
        said: what is told to the user.
        doubt: what a size of this script means; empty where it is what a step takes.
    """

    def __init__(
        self,
        what: str,
        remedy: str,
        place: SizePlace,
        why: str = "no DataLoader can be asked for sizes",
        doubt: str = "",
    ) -> None:
        super().__init__(what, remedy)
        self.place, self.doubt = place, doubt
        self.said = f"{why}: {place.text} sets the size, and the script is started once for each"


def of_ranks(error: SizeInScriptError, options: RunOptions) -> RunError:
    """What the error is where the script starts its ranks itself: nobody would steer those."""
    start = command(
        options.script, options.arguments, module=options.module, options=("--nproc-per-node", "2")
    )
    return RunError(
        error.what,
        "Ranks that a script starts itself are steered through a DataLoader alone: let them fetch "
        f"their batches from one, or let the script be started as one of them: {start}",
    )


def refused_without_a_loader(detail: str, options: RunOptions) -> SizeInScriptError | None:
    """The error for a script that ran out of memory, with batches that no loader could cut."""
    place = find_size(options.known_script)
    if not isinstance(place, SizePlace) or options.loader is not None or options.verb != "run":
        return None
    what = f"{options.script} ran out of memory before a DataLoader was made ({detail})."
    why = "out of memory, and no DataLoader was made whose batches could be smaller"
    return SizeInScriptError(what, proposal(options.known_script), place, why)


def not_by_a_loader(message: CannotSteer, options: RunOptions) -> BatchAdvisorError:
    """The error for a script whose loaders cannot be asked for sizes."""
    script = options.known_script._replace(settings=message.settings, files=message.files)
    place = find_size(script)
    what = f"{message.reason}."
    remedy = proposal(script)
    if message.usage:
        return UsageError(what, remedy)
    if isinstance(place, SizePlace):
        if options.loader is not None or options.traits.process_per_size:
            return RunError(what, remedy)
        return SizeInScriptError(what, remedy, place, doubt=_of_the_same(message.repeated))
    if place.computed:
        change = "Change these by hand, and measure what comes of it with the callback."
        return RunError(computed_text(options.script, place), change)
    if message.whole and not place.several:
        return RunError(f"{message.whole}: there is no size to choose.", _PARTS)
    if message.unwritten and not place.several:
        start = command(script.name, script.arguments, module=script.module)
        remedy = f"{message.unwritten}. Write that number into the call, and run again: {start}"
    return RunError(what, remedy)


def _of_the_same(repeated: str) -> str:
    """The doubt about a script whose every step trains on the same samples, as `repeated` says."""
    if not repeated:
        return ""
    return (
        f"{repeated}: a larger size is more data in each of them, and no fewer steps for the same "
        "data (as a benchmark may mean it)"
    )
