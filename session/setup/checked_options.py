"""The options of a run, checked against each other: one way for the command line and for Python."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...errors import UsageError
from ...probes.source.named_size import SizePlace, find_named
from ...probes.source.placeholder import has_placeholder, proposal, several_text
from ...probes.source.script_options import PLACEHOLDER
from ...records import Goal
from .options import DEFAULT_SCHEDULE, RunOptions, is_schedule
from .sequence_lengths import with_sequence_lengths

_NEARLY = re.compile(r"\{\s*(batch|bs|bsz|b|size|batch[-_ ]?sizes?)\s*\}", re.IGNORECASE)


class Spelling(msgspec.Struct, frozen=True, kw_only=True):
    """How whoever asks writes the options that an error names.

    Attributes:
        timeout: with a place for its value.
        no_profile: the option that leaves profiles out.
    """

    timeout: str
    no_profile: str
    stacks: str
    profile_schedule: str
    resume: str
    output: str
    setting: str


COMMAND_LINE = Spelling(
    timeout="--timeout {:g}",
    no_profile="--no-profile",
    stacks="--stacks",
    profile_schedule="--profile-schedule",
    resume="--resume",
    output="--output",
    setting="--set {}",
)
PYTHON = Spelling(
    timeout="timeout_s={!r}",
    no_profile="profile=False",
    stacks="stacks",
    profile_schedule="profile_schedule",
    resume="resume",
    output="output",
    setting="setting={!r}",
)


def checked_options(
    spelling: Spelling,
    *,
    script: str,
    goal: Goal,
    timeout_s: float = 60.0,
    profile_schedule: Sequence[int] | None = None,
    stacks: bool = False,
    output: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    template: bool = False,
    setting: str | None = None,
    **others: Any,
) -> RunOptions:
    """The options of a run, checked against each other.

    Args:
        template: the template door was asked for; a placeholder in the arguments asks for it too.
        setting: `NAME={batch_size}`, the number in the script that sets the size.
        others: fields of the options that need no check.

    Raises:
        UsageError: they contradict each other, or one cannot be.
    """
    if not timeout_s > 0:
        what = f"{spelling.timeout.format(timeout_s)}: every trial would count as hung."
        raise UsageError(what, "Allow some seconds.")
    if not goal.profile and (stacks or profile_schedule is not None):
        what = f"{spelling.no_profile} contradicts {spelling.stacks} and "
        raise UsageError(f"{what}{spelling.profile_schedule}.", "Leave one of them out.")
    if resume is not None and output is not None:
        what = f"{spelling.resume} continues in its own folder; {spelling.output} names another."
        raise UsageError(what, "Leave one of them out.")
    options = RunOptions(
        script=script,
        goal=goal,
        silence_s=timeout_s,
        profile_schedule=_schedule(spelling, profile_schedule),
        with_stack=stacks,
        output=None if output is None else Path(output),
        resume=None if resume is None else Path(resume),
        **others,
    )
    options = _with_door(with_sequence_lengths(options), forced=template, waits=setting is not None)
    return options if setting is None else _with_setting(spelling, options, setting)


def _schedule(spelling: Spelling, steps: Sequence[int] | None) -> tuple[int, int, int]:
    if steps is None:
        return DEFAULT_SCHEDULE
    wanted = tuple(steps)
    if any(type(count) is not int for count in wanted) or not is_schedule(wanted):
        what = f"{spelling.profile_schedule}={steps!r} is not (wait, warm-up, active) with active "
        raise UsageError(f"{what}at least 1.", "For example (0, 1, 3); 100 steps at most.")
    wait, warm_up, active = wanted
    return wait, warm_up, active


def _with_setting(spelling: Spelling, options: RunOptions, setting: str) -> RunOptions:
    """The options with the place that `--set NAME={batch_size}` names.

    Raises:
        UsageError: it names none, or several; or the options contradict it.
    """
    what = spelling.setting.format(setting)
    name, _, value = setting.partition("=")
    if value != PLACEHOLDER or not name:
        raise UsageError(f"{what} is not NAME={PLACEHOLDER}.", f"Write NAME={PLACEHOLDER}.")
    if not options.traits.steers_loader or options.loader is not None:
        msg = f"{what} says where sizes go in, and so does another option or argument."
        raise UsageError(msg, "Leave one of them out.")
    place = find_named(options.known_script, name)
    if isinstance(place, SizePlace):
        return options.through(place)
    named = [each for each in place if each.name == name]
    if named:
        lines = ", ".join(f"{each.text}" for each in named)
        msg = f"{what}: {options.script} sets it in several places: {lines}."
        where = named[0].source.place
        raise UsageError(
            msg, f"Name the line: {spelling.setting.format(f'{where}={PLACEHOLDER}')}."
        )
    msg = f"{what}: {options.script} sets no number and has no option of that name."
    raise UsageError(msg, several_text(place) if place else "It sets none at all.")


def _with_door(options: RunOptions, *, forced: bool, waits: bool) -> RunOptions:
    """The options with their door: a placeholder in the script's arguments chooses the template.

    Args:
        forced: `--template` was given.
        waits: the place of the size is named apart.

    Raises:
        UsageError: the placeholder is missing, or misspelt, or the options contradict it.
    """
    arguments = options.arguments
    if not has_placeholder(arguments):
        near = next(filter(None, map(_NEARLY.search, arguments)), None)
        if near is not None:
            msg = f"{near.group()} is not the placeholder for the batch size."
            raise UsageError(msg, f"Write {PLACEHOLDER}.")
        if forced and not waits:
            raise UsageError(
                f"--template: no argument of {options.script} holds {PLACEHOLDER}.",
                proposal(options.known_script, forced=True),
            )
        return msgspec.structs.replace(options, forced=forced)
    if options.traits.declares_workload:
        msg = f"a declared workload gets its size by a function call, not by {PLACEHOLDER}."
        raise UsageError(msg, "Leave the placeholder or --workload out.")
    if options.loader is not None:
        msg = f"--loader steers a DataLoader, and {PLACEHOLDER} leaves all of them alone."
        raise UsageError(msg, "Leave one of them out.")
    return msgspec.structs.replace(options, door="template", forced=forced)
