"""`batchadvisor plan`: records from any hosts, put together into one plan."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from ...advisor.advise import advise
from ...errors import BatchAdvisorError, UsageError
from ...records import RunRecord
from ...session.devices.outcome import read_devices
from ...session.pages import terminal_text, write_page
from ...session.recording.store import DEVICES, RECORD, read_record
from .records import ClusterPlan, Link
from .split.cards import Probed
from .split.cluster import plan_cluster
from .split.interconnects import Interconnect
from .split.links import FARTHEST_ESTIMATE, estimated_link, measured_link


def plan(
    records: Sequence[Path],
    *,
    counts: Sequence[tuple[str, int]],
    prices: Sequence[tuple[str, float]],
    global_batch: int | None,
    interconnect: tuple[str, Interconnect] | None,
    up_to: int | None,
    multiple_of: int = 1,
) -> ClusterPlan:
    """Reads the records and plans.

    Args:
        counts, prices: by the name of a type, as typed.
        interconnect: as typed, and what it is.
        up_to: GPUs of the forecast.
        multiple_of: every size is a multiple of it.

    Raises:
        UsageError: no record can be read, a name is not known, or the numbers cannot work.
    """
    candidates, broken = _candidates(records)
    singles, jobs = _apart(candidates)
    count_of = matched("--count", counts, singles, broken)
    price_of = matched("--price", prices, singles, broken)
    typed = {place: name for name, place in _typed(counts, singles, broken)}
    names = named(singles, typed)
    probed = [
        Probed(
            name=name,
            folder=candidate.folder,
            record=candidate.record,
            advice=advise(candidate.record),
            count=count_of.get(place, 0),
            price=price_of.get(place),
        )
        for place, (name, candidate) in enumerate(zip(names, singles, strict=True))
    ]
    link = _link(jobs, probed, interconnect)
    if up_to is not None and up_to > FARTHEST_ESTIMATE and (link is None or link.sync_s is None):
        raise UsageError(
            f"--up-to {up_to}: beyond {FARTHEST_ESTIMATE} GPUs only a measured Tsync is taken "
            "further.",
            "Give the record of a job of several ranks (run --nproc-per-node), or a smaller one.",
        )
    return plan_cluster(
        probed,
        global_batch=global_batch,
        link=link,
        up_to=up_to or FARTHEST_ESTIMATE,
        left_out=broken,
        multiple_of=multiple_of,
    )


def _candidates(records: Sequence[Path]) -> tuple[list[Candidate], dict[str, str]]:
    """Reads the records; returns those that can be read, and why the rest cannot.

    Raises:
        UsageError: a place without a record, or no record at all that can be read.
    """
    candidates: list[Candidate] = []
    broken: dict[str, str] = {}
    first: BatchAdvisorError | None = None
    for path in records:
        several = read_devices(path) if path.is_dir() and (path / DEVICES).is_file() else None
        if several is not None:
            for run in several.record.devices:
                if run.twin_of is None and run.device not in several.answers:
                    reason = run.error.removeprefix("Error: ").rstrip(".")
                    broken[os.fspath(path / run.device)] = reason or "its run left no record"
                elif run.twin_of is None:
                    own = several.answers[run.device][0]
                    folder = os.fspath(path / run.folder)
                    candidates.append(Candidate(label=run.device, folder=folder, record=own))
            continue
        shown = os.fspath(path)
        file = path / RECORD if path.is_dir() else path
        try:
            record = read_record(path)
        except UsageError as error:
            if not file.is_file():
                raise
            first = first or error
            broken[shown] = error.what.rstrip(".")
            continue
        label = (path if path.is_dir() else path.parent).resolve().name
        candidates.append(Candidate(label=label, folder=shown, record=record))
    if not candidates:
        if first is not None:
            raise first
        raise UsageError("no device in these records was measured.", "Name other records.")
    return candidates, broken


def _apart(candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """Records of types, and records of jobs of several ranks that only tell what Tsync is.

    A job whose type has no record of one process stands for the type as well.
    """
    jobs = [candidate for candidate in candidates if _ranks(candidate.record) > 1]
    singles = [candidate for candidate in candidates if candidate not in jobs]
    known = {candidate.device for candidate in singles}
    for job in jobs:
        if job.device not in known:
            singles.append(job)
            known.add(job.device)
    return singles, jobs


def _ranks(record: RunRecord) -> int:
    job = record.distribution
    return 1 if job is None else job.world_size


def _typed(
    counts: Sequence[tuple[str, int]], singles: Sequence[Candidate], broken: dict[str, str]
) -> list[tuple[str, int]]:
    return [
        (name, next(iter(matched("--count", [(name, number)], singles, broken))))
        for name, number in counts
    ]


def _link(
    jobs: Sequence[Candidate],
    probed: Sequence[Probed],
    interconnect: tuple[str, Interconnect] | None,
) -> Link | None:
    """Where Tsync comes from: what was typed, else the record with the most ranks."""
    links = []
    for job in sorted(jobs, key=lambda job: -_ranks(job.record)):
        choice = advise(job.record).recommended
        size = None if choice is None else choice.batch_size
        with contextlib.suppress(ValueError):
            link = measured_link(job.folder, job.record, size)
            if link is not None:
                links.append(link)
    if interconnect is None:
        return links[0] if links else None
    text, line = interconnect
    discovery = probed[0].record.discovery
    width = 2 if discovery is not None and discovery.precision.startswith(HALF) else 4
    num_parameters = None if discovery is None else discovery.num_parameters
    estimate = estimated_link(line, text, num_parameters, width)
    if not links:
        return estimate
    reasons = {name: why for name, why in estimate.unavailable.items() if name != "busy_factor"}
    return msgspec.structs.replace(
        estimate,
        busy_factor=links[0].busy_factor,
        unavailable=reasons | links[0].unavailable,
    )


HALF = ("bfloat16", "float16")
"""Precisions of parameters whose gradients take two bytes."""


def plan_json(answer: ClusterPlan) -> str:
    """The output of `--json`."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=1).decode()


def plan_text(answer: ClusterPlan, next_command: str, *, width: int, color: bool) -> str:
    """The output of the command."""
    from .page import build_plan_page

    page = build_plan_page(answer)
    text = terminal_text(page, next_command=next_command, width=width, color=color)
    return text.rstrip("\n")


def next_command(answer: ClusterPlan, typed: Sequence[str]) -> str:
    """The command that a user is likely to want now.

    Args:
        typed: the records and options of this one.
    """
    words = ["batchadvisor", "plan", *typed]
    if not answer.options and not answer.link:
        for card in answer.cards:
            # A name with its folder tells two types apart on a page; of such the folder is taken.
            apart = any(other.name == f"{card.name} ({other.record})" for other in answer.cards)
            folder = apart or card.name.endswith(f" ({card.record})")
            words += ["--count", f"{card.record if folder else card.name}=2"]
        return shlex.join(words)
    return shlex.join([*words, "-o", "plan.html"])


def write_plan(answer: ClusterPlan, path: Path) -> None:
    """Writes the plan whole or not at all; the suffix chooses the format.

    Raises:
        RunError: it cannot be written.
    """
    from .page import build_plan_page

    write_page(lambda: build_plan_page(answer), plan_json(answer), path)


# Which record a name of `--count` or `--price` means, and what a type is called in a plan.

MAKERS = ("NVIDIA ", "Tesla ", "GeForce ", "AMD ", "Quadro ")
Number = TypeVar("Number", int, float)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A record that a plan may use.

    Attributes:
        label: the name of its folder, or of its device in a run on several.
        folder: as typed.
    """

    label: str
    folder: str
    record: RunRecord

    @property
    def device(self) -> str:
        """As the driver names it."""
        return self.record.device.name if self.record.device is not None else ""


def short_name(device: str) -> str:
    """A GPU's name without its maker's.

    >>> short_name("NVIDIA A100-SXM4-80GB"), short_name("Tesla T4")
    ('A100-SXM4-80GB', 'T4')
    """
    for maker in MAKERS:
        device = device.removeprefix(maker)
    return device


def matched(
    option: str,
    given: Sequence[tuple[str, Number]],
    candidates: Sequence[Candidate],
    broken: Mapping[str, str],
) -> dict[int, Number]:
    """The numbers by the position of the record that each name means.

    Raises:
        UsageError: a name means no record or several, or two names mean one.
    """
    numbers: dict[int, Number] = {}
    for name, number in given:
        places = _places(name, candidates)
        if not places:
            raise UsageError(f"{option} {name}: {_why_none(name, candidates, broken)}", KNOWN)
        if len(places) > 1:
            several = ", ".join(_described(candidates[place]) for place in places)
            raise UsageError(
                f"{option} {name} means {len(places)} records: {several}.",
                "Write the name of the folder, or more of the device's name.",
            )
        if places[0] in numbers:
            raise UsageError(
                f"{option} {name}: {_described(candidates[places[0]])} has its number already.",
                "Give each type once.",
            )
        numbers[places[0]] = number
    return numbers


KNOWN = "A name is that of a record's folder, or a part of its device's name."


def named(candidates: Sequence[Candidate], typed: Mapping[int, str]) -> list[str]:
    """A name for each, none twice: as typed, else the GPU's, else the folder's."""
    devices = Counter(candidate.device for candidate in candidates)
    names: list[str] = []
    for place, candidate in enumerate(candidates):
        record = candidate.record
        gpu = record.device is not None and record.device.kind == "cuda"
        name = typed.get(place) or (
            short_name(candidate.device) if gpu and devices[candidate.device] == 1 else ""
        )
        name = name or candidate.label or candidate.folder
        if name in names:
            name = f"{name} ({candidate.folder})"
        names.append(name)
    return names


def _places(name: str, candidates: Sequence[Candidate]) -> list[int]:
    """Exact names before parts of names."""
    wanted = name.strip().lower()
    exact = [
        place
        for place, candidate in enumerate(candidates)
        if wanted
        in (
            candidate.label.lower(),
            candidate.folder.rstrip("/").lower(),
            candidate.device.lower(),
            short_name(candidate.device).lower(),
        )
    ]
    if exact or not wanted:
        return exact
    return [
        place
        for place, candidate in enumerate(candidates)
        if _holds(candidate.device.lower(), wanted)
    ]


def _holds(device: str, wanted: str) -> bool:
    """Whether the device's name has these words: `L4` is no part of `L40S`."""
    at = device.find(wanted)
    while at >= 0:
        before, after = device[at - 1 : at], device[at + len(wanted) : at + len(wanted) + 1]
        if not before.isalnum() and not after.isalnum():
            return True
        at = device.find(wanted, at + 1)
    return False


def _why_none(name: str, candidates: Sequence[Candidate], broken: Mapping[str, str]) -> str:
    for folder, reason in broken.items():
        if folder.rstrip("/").rsplit("/", maxsplit=1)[-1].lower() == name.lower():
            return f"its record cannot be read ({reason})."
    known = ", ".join(_described(candidate) for candidate in candidates)
    return f"no record is of that type; there are {known}."


def _described(candidate: Candidate) -> str:
    return f"{candidate.device or candidate.label} ({candidate.folder})"
