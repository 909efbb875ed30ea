"""Messages to the user when steps train on the same batches, whatever size is asked for."""

from __future__ import annotations

import msgspec

from ...advisor.measured.following import NotFollowed, not_followed
from ...errors import RunError
from ...probes.source.named_size import SizePlace, find_size
from ...probes.source.number_place import place_of_number
from ...probes.source.placeholder import command, flag_of_placeholder, proposal, without_placeholder
from ...probes.source.script_options import PLACEHOLDER
from ...records import BatchSizeSource, RunRecord, Trial
from ..recording.record_writer import RecordWriter
from ..setup.options import RunOptions
from .size_in_script import SizeInScriptError


def check_arrival(writer: RecordWriter, options: RunOptions) -> None:
    """Ends the search where the sizes that are asked for change nothing.

    Raises:
        SizeInScriptError: they do not arrive through the loader, and it is known what sets them.
        RunError: they do not arrive.
    """
    record = writer.record
    if record.discovery is None or record.discovery.axis != "samples":
        return
    vain = not_followed(record.trials)
    if vain is not None:
        writer.change(trials=tuple(_in_vain(trial, vain) for trial in record.trials))
        raise vain_error(record, vain, options)


def _in_vain(trial: Trial, vain: NotFollowed) -> Trial:
    """A trial whose size did not arrive, whatever went through the loader."""
    if not trial.ran:
        return trial
    detail = (
        f"asked for {vain.smaller} and {vain.larger}, every step trained on "
        f"{_shown(vain.shape)} both times"
    )
    return msgspec.structs.replace(trial, outcome="wrong_size", detail=detail)


def vain_error(record: RunRecord, vain: NotFollowed, options: RunOptions) -> RunError:
    """The error, with the place that may set the size."""
    assert record.discovery is not None
    template = record.discovery.traits.size_is_argument
    flag = flag_of_placeholder(options.arguments) or ""
    name = (flag or PLACEHOLDER) if template else record.discovery.primary.size_name
    if template and options.place is not None:
        name = options.place.name
    what = (
        f"the batch size does not arrive: asked for {vain.smaller} and {vain.larger} by {name}, "
        f"every step trained on {_shown(vain.shape)} both times ({vain.what})."
    )
    place = _place_of(vain, record, options)
    if place is not None and place.source.place is None and place.source.option != flag:
        found: tuple[str, BatchSizeSource] | None = (place.name, place.source)  # as typed
    else:
        found = place_of_number(options.script, vain.shape, module=options.module, besides=flag)
    seems = "" if found is None else f" {_seems(found[1])}"
    if template:
        return RunError(what, f"{_to_type(found, options)}{seems}")
    if place is not None:
        seems += f" {proposal(options.known_script, forced=True)}"
    remedy = f"{_of_a_loader(record)}{seems}"
    if place is not None and record.discovery.traits.steers_loader and options.loader is None:
        why = f"every step trained on {_shown(vain.shape)}, whatever the loader was asked for"
        return SizeInScriptError(what, remedy, place, why)
    return RunError(what, remedy)


def _seems(source: BatchSizeSource) -> str:
    if source.place is None:
        return f"{source.before} on the command line may set it."
    named = "" if source.option is None else f" of {source.option}"
    return f"{source.place} may set it: {source.before}{named}."


def _place_of(vain: NotFollowed, record: RunRecord, options: RunOptions) -> SizePlace | None:
    """The one place that sets the size, where it has a number of what arrived.

    Of several, as where each loader is given its own, it is the one of the training loader.
    """
    place = find_size(options.known_script)
    if not isinstance(place, SizePlace):
        source = record.discovery.primary.source if record.discovery is not None else None
        written = None if source is None else source.place
        own = [each for each in place.several if written and each.source.place == written]
        if len(own) != 1:
            return None
        place = own[0]
    return place if place.number in vain.shape else None


def _to_type(found: tuple[str, BatchSizeSource] | None, options: RunOptions) -> str:
    """Another command, which was not tried."""
    words, ours = without_placeholder(options.arguments), tuple[str, ...]()
    if found is not None and found[1].option is not None:
        words = (*words, found[1].option, PLACEHOLDER)
    else:
        ours = ("--set", f"{'NAME' if found is None else found[0]}={PLACEHOLDER}")
    whole = command(options.script, words, module=options.module, options=ours)
    return f"Name what sets it: {whole}."


def _of_a_loader(record: RunRecord) -> str:
    assert record.discovery is not None
    if not record.discovery.traits.steers_loader:
        return "Make steps of the batch size that is asked for."
    place = record.discovery.primary.place
    where = f" ({place})" if place is not None else ""
    return (
        f"What the training loader{where} draws does not decide what a step trains on: an item of "
        "the data set may be a whole batch. Change the size where batches are made."
    )


def _shown(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"{shape[0]} samples"
    return " x ".join(map(str, shape))
