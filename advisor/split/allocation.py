"""Splits one global batch over devices of unlike speed so that the slowest step is shortest.

The step of all ends when the last device does: minimise max t_i(b_i) with the sum of b_i given,
a minimax resource allocation. For step times that never fall with the size, giving every next
portion to the device that would then be done first is exact (Ibaraki and Katoh, Resource Allocation
Problems, 1988). Shares in proportion to speed are that only where no step has a fixed part.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import lcm

from ...records import (
    Advice,
    DeviceRun,
    DevicesRecord,
    RunRecord,
    SplitKind,
    SplitOption,
    SplitPlan,
    SplitShare,
)
from ..measured.measurements import Measurements
from .step_times import Member, member_of

COSTS_LITTLE = 0.05
"""Leaving the slowest device out is worth a remark if it costs less than this share."""
BALANCED = 0.05
"""Step times that differ by less are called balanced."""
MULTIPLES = (8, 4, 2)
"""Sizes that tensor cores like, where there is room for them."""
PORTIONS = 16
"""A device has at least so many portions on average, or the granularity is made finer."""
NO_SYNCHRONISATION = (
    "not measured between these devices: what the exchange of gradients costs comes on top"
)
DEFAULT_BATCH = "the sum of the recommended sizes"

Time = Callable[[int], float]
Answers = Mapping[str, tuple[RunRecord, Advice]]


def allocate(
    total: int,
    times: Sequence[Time],
    caps: Sequence[int],
    *,
    granularity: int = 1,
    smallest: int = 0,
) -> tuple[int, ...] | None:
    """Sizes that sum to `total` and whose largest time is as small as possible.

    Equal devices differ by one portion at most.

    Args:
        times: seconds by size, of each device; must not fall.
        caps: the most that each may get.
        granularity: every size is a multiple of it; so must `total` and `smallest` be.
        smallest: what each gets at least.

    Returns:
        `None` where the caps do not hold the total, or the smallest sizes exceed it.

    >>> allocate(12, [lambda b: 1 + b, lambda b: 2 + 3 * b], [99, 99])
    (9, 3)
    """
    if total % granularity or smallest % granularity:
        msg = f"{total} and {smallest} must be multiples of {granularity}"
        raise ValueError(msg)
    sizes = [smallest] * len(times)
    left = total - sum(sizes)
    if left < 0 or any(smallest > cap for cap in caps):
        return None
    heap = [
        (time(smallest + granularity), smallest, place)
        for place, (time, cap) in enumerate(zip(times, caps, strict=True))
        if smallest + granularity <= cap
    ]
    heapq.heapify(heap)
    for _ in range(left // granularity):
        if not heap:
            return None
        place = heap[0][2]
        sizes[place] += granularity
        more = sizes[place] + granularity
        if more <= caps[place]:
            heapq.heapreplace(heap, (times[place](more), sizes[place], place))
        else:
            heapq.heappop(heap)
    return tuple(sizes)


def plan_split(
    devices: DevicesRecord, answers: Answers, global_batch: int | None = None
) -> SplitPlan | str:
    """The plan for a run on several devices, or the reason why there is none.

    Args:
        answers: record and advice by device.
        global_batch: samples of all devices in a step; the sum of the recommended sizes otherwise.
    """
    if len(devices.devices) < 2:
        return "the run was on one device"
    members, left_out = _members(devices.devices, answers)
    if len(members) < 2:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        return f"a split needs two devices whose step times are known. {reasons}"
    total = global_batch or sum(member.recommended for member in members)
    num_samples = _num_samples(answers[member.device][0] for member in members)
    if num_samples is not None and total > num_samples:
        return f"a step of {total} samples is more than the {num_samples} of the data set"
    least = lcm(*(multiple_in(record) for record, _ in answers.values()))
    if total % least:
        return f"{total} samples are no multiple of {least}, which every size has to be"
    portion = _granularity(members, total, least)
    sizes = _allocate(members, total, portion)
    if sizes is None:
        return f"{total} samples cannot be split over {len(members)} devices without accumulation"
    options = _options(members, sizes, portion, least)
    plan = options[0]
    assert plan.step_s is not None
    assert plan.samples_per_s is not None
    return SplitPlan(
        global_batch=total,
        global_batch_source=DEFAULT_BATCH if global_batch is None else "as asked",
        granularity=portion,
        shares=tuple(
            _share(member, size, size * len(members) / total)
            for member, size in zip(members, sizes, strict=True)
        ),
        predicted_step_s=plan.step_s,
        predicted_samples_per_s=plan.samples_per_s,
        spread_pct=100 * (1 - min(plan.step_times_s) / plan.step_s),
        num_samples=num_samples,
        options=options,
        remarks=(*_held(members, sizes, portion), *_remarks(options)),
        left_out=left_out,
        unavailable={"synchronisation": NO_SYNCHRONISATION},
    )


def _members(runs: Sequence[DeviceRun], answers: Answers) -> tuple[list[Member], dict[str, str]]:
    members: list[Member] = []
    left_out: dict[str, str] = {}
    for run in runs:
        member_or_reason = member_of(run, answers.get(run.device))
        if isinstance(member_or_reason, str):
            left_out[run.device] = member_or_reason
        else:
            members.append(member_or_reason)
    return members, left_out


def _num_samples(records: Iterable[RunRecord]) -> int | None:
    counts = [
        record.discovery.primary.num_samples for record in records if record.discovery is not None
    ]
    known = [count for count in counts if count is not None]
    return min(known, default=None)


def multiple_in(record: RunRecord) -> int:
    """The number of which sizes have to be multiples, by a record."""
    return Measurements.of(record).multiples.sure.step


def _granularity(members: Sequence[Member], total: int, least: int) -> int:
    """Picks, on GPUs, multiples that tensor cores like, if all sizes are such already and leave
    room.

    Args:
        least: what every size is a multiple of in any case.
    """
    if not all(member.cuda for member in members):
        return least
    for portion in (lcm(multiple, least) for multiple in MULTIPLES):
        fine = total >= PORTIONS * portion * len(members)
        whole = all(member.recommended % portion == 0 for member in members)
        if fine and whole and total % portion == 0:
            return portion
    return least


def _allocate(members: Sequence[Member], total: int, portion: int) -> tuple[int, ...] | None:
    """Every rank takes part in every step: none gets nothing."""
    times, caps = [member.step_s for member in members], [member.largest for member in members]
    return allocate(total, times, caps, granularity=portion, smallest=portion)


def _share(member: Member, size: int, weight: float) -> SplitShare:
    return SplitShare(
        device=member.device,
        batch_size=size,
        predicted_step_s=member.step_s(size),
        step_s=member.measured.get(size),
        time_source=member.time_source,
        twin_of=member.twin_of,
        speed_ratio=member.speed_ratio,
        largest=member.largest,
        largest_ran=member.largest_ran,
        largest_source=member.largest_source,
        gradient_weight=weight,
    )


def _options(
    members: Sequence[Member], sizes: tuple[int, ...], portion: int, least: int
) -> tuple[SplitOption, ...]:
    """The plan, equal shares, shares in proportion to speed, the fastest 1, 2, ... devices."""
    total = sum(sizes)

    def in_multiples(weights: Sequence[float]) -> tuple[int, ...]:
        return tuple(least * portions for portions in proportional(total // least, weights))

    rates = [member.rate for member in members]
    options = [
        _option("plan", members, sizes),
        _option("equal shares", members, in_multiples([1.0] * len(members))),
        _option("in proportion to speed", members, in_multiples(rates)),
    ]
    fastest = sorted(members, key=lambda member: -member.rate)
    for count in range(1, len(members)):
        chosen = {member.device for member in fastest[:count]}
        kept = [member for member in members if member.device in chosen]
        room = sum(member.largest // portion * portion for member in kept)
        its = _allocate(kept, min(total, room), portion)
        assert its is not None  # the room is that of the caps, and each holds a portion
        options.append(_option("fastest only", kept, its))
    return tuple(options)


def proportional(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Whole shares in proportion, the largest remainders rounded up.

    >>> proportional(10, [1, 1, 1]), proportional(100, [3, 1])
    ((4, 3, 3), (75, 25))
    """
    whole = sum(weights)
    exact = [total * weight / whole for weight in weights]
    sizes = [int(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda place: sizes[place] - exact[place])
    for place in order[: total - sum(sizes)]:
        sizes[place] += 1
    return tuple(sizes)


def _option(kind: SplitKind, members: Sequence[Member], sizes: tuple[int, ...]) -> SplitOption:
    pairs = list(zip(members, sizes, strict=True))
    names = tuple(member.device for member in members)
    too_much = [member for member, size in pairs if size > member.largest]
    if too_much or not all(sizes):
        reason = (
            f"{too_much[0].device} may get {too_much[0].largest} at most"
            if too_much
            else "a device would get no sample"
        )
        return SplitOption(
            kind=kind,
            devices=names,
            batch_sizes=sizes,
            global_batch=sum(sizes),
            unavailable={"step_s": reason, "samples_per_s": reason},
        )
    times = tuple(member.step_s(size) for member, size in pairs)
    return SplitOption(
        kind=kind,
        devices=names,
        batch_sizes=sizes,
        global_batch=sum(sizes),
        step_times_s=times,
        step_s=max(times),
        samples_per_s=sum(sizes) / max(times),
    )


def _held(members: Sequence[Member], sizes: tuple[int, ...], portion: int) -> tuple[str, ...]:
    """Devices that would be given more if they might: then the plan is not balanced."""
    pace = max(member.step_s(size) for member, size in zip(members, sizes, strict=True))
    held = [
        member
        for member, size in zip(members, sizes, strict=True)
        if size + portion > member.largest and member.step_s(size) < pace * (1 - BALANCED)
    ]
    if not held:
        return ()
    names = ", ".join(f"{member.device} ({member.largest})" for member in held)
    text = f"Held by the most that may be given: {names}; larger sizes that ran there would help."
    within = min(member.step_s(member.largest) for member in held)
    fits = [_most(member, within) for member in members]
    if all(fits):
        text += f" A global batch of about {sum(fits)} (advise --global-batch) would be balanced."
    return (text,)


def _most(member: Member, within_s: float) -> int:
    """The largest size that is done in time, 0 if none is."""
    low, high = 0, member.largest
    while low < high:
        middle = (low + high + 1) // 2
        if member.step_s(middle) <= within_s:
            low = middle
        else:
            high = middle - 1
    return low


def _remarks(options: Sequence[SplitOption]) -> tuple[str, ...]:
    """Words the effect of leaving the slowest device out, where it costs little."""
    plan, fewer = options[0], options[-1]
    if plan.samples_per_s is None or fewer.samples_per_s is None:
        return ()
    without = ", ".join(device for device in plan.devices if device not in fewer.devices)
    share = fewer.samples_per_s / plan.samples_per_s
    smaller = fewer.global_batch < plan.global_batch
    at = f" at {fewer.global_batch} samples a step, what fits there" if smaller else ""
    if share >= 1:
        text = f"Without {without} the others are predicted to do x{share:.2f} the samples/s{at}."
        return (text,)
    if share >= 1 - COSTS_LITTLE:
        return (f"Leaving {without} out is predicted to cost only {1 - share:.1%}{at}.",)
    return ()
