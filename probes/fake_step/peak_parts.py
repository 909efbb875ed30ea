"""Tensors that live at the peak of a step, and over its course, from the requests for memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...records import PeakPlace, PeakRole, PeakSource, StepTimeline
from .origins import Origin

MOST_PLACES = 10
ROLES: Mapping[str, PeakRole] = {
    "forward": "activations",
    "backward": "backward",
    "optimizer": "optimizer's temporaries",
}
MAX_POSITIONS = 240


class PeakParts(NamedTuple):
    """Memory at the peak by its parts; see `FakeTrial`."""

    at_peak: dict[PeakRole, int]
    places: tuple[PeakPlace, ...]
    modules: tuple[PeakSource, ...]
    lines: tuple[PeakSource, ...]


def peak_parts(
    requests: Sequence[int],
    origins: Sequence[Origin | None],
    roles: Mapping[int, PeakRole],
    owners: Mapping[int, str] = {},
) -> PeakParts:
    """Bytes by what they are for, by module and by line, and the places that hold most of them.

    Args:
        requests, origins: see `StorageCount`.
        roles: of requests that are known to be more than memory, by their numbers.
        owners: modules that hold what a request is for, by its number.
    """
    by_role: Counter[PeakRole] = Counter()
    places: Counter[tuple[PeakRole, str, str]] = Counter()
    tensors: Counter[tuple[PeakRole, str, str]] = Counter()
    alive = alive_at_peak(requests)
    for number, size in alive.items():
        origin, role = origins[number - 1], role_of(number, origins, roles)
        by_role[role] += size
        if number not in roles and origin is not None:
            place = (role, origin.module, origin.line)
            places[place] += size
            tensors[place] += 1

    def module_of(number: int) -> str:
        origin = origins[number - 1]
        return owners.get(number, "" if origin is None else origin.module)

    def line_of(number: int) -> str:
        origin = origins[number - 1]
        return "" if origin is None else origin.line

    def sources(name_of: Callable[[int], str]) -> tuple[PeakSource, ...]:
        return _sources(alive, name_of, lambda number: role_of(number, origins, roles))

    return PeakParts(
        dict(by_role.most_common()),
        tuple(
            PeakPlace(
                role=role, module=module, line=line, num_bytes=size, num_tensors=tensors[place]
            )
            for place, size in places.most_common(MOST_PLACES)
            for role, module, line in (place,)
        ),
        sources(module_of),
        sources(line_of),
    )


def role_of(
    number: int, origins: Sequence[Origin | None], roles: Mapping[int, PeakRole]
) -> PeakRole:
    """The role of the n-th request's memory."""
    origin = origins[number - 1]
    if number in roles:
        return roles[number]
    if origin is None:
        return "kept from before"
    return "loss and logits" if origin.loss_input else ROLES[origin.phase]


def _sources(
    alive: Mapping[int, int], name_of: Callable[[int], str], role: Callable[[int], PeakRole]
) -> tuple[PeakSource, ...]:
    """The largest sources by name, and what belongs to none."""
    bytes_of: Counter[str] = Counter()
    tensors: Counter[str] = Counter()
    roles: dict[str, Counter[PeakRole]] = {}
    for number, size in alive.items():
        name = name_of(number)
        bytes_of[name] += size
        tensors[name] += 1
        roles.setdefault(name, Counter())[role(number)] += size
    names = [name for name, _ in bytes_of.most_common() if name][:MOST_PLACES]
    names += [""] if bytes_of[""] else []
    return tuple(
        PeakSource(name=name, roles=dict(roles[name].most_common()), num_tensors=tensors[name])
        for name in names
    )


def peak_outside(requests: Sequence[int], origins: Sequence[Origin | None]) -> int:
    """The most that lived as something outside the optimizer's step began to, in bytes."""
    live = most = 0
    for number, size in _changes(requests):
        live += size
        origin = origins[number - 1]
        if size > 0 and (origin is None or origin.phase != "optimizer"):
            most = max(most, live)
    return most


def peak_of(requests: Sequence[int], sizes: Mapping[int, float]) -> float:
    """The most that would live at once if some requests, by number, had these sizes, in bytes."""
    live = most = 0.0
    for number, size in _changes(requests):
        own = sizes.get(number, abs(size))
        live += own if size > 0 else -own
        most = max(most, live)
    return most


def alive_at_peak(requests: Sequence[int]) -> dict[int, int]:
    """Bytes of each request that lived when most did, by its number."""
    live = most = end = 0
    for at, (_, size) in enumerate(_changes(requests), 1):
        live += size
        if live > most:
            most, end = live, at
    alive: dict[int, int] = {}
    for number, size in _changes(requests[:end]):
        if size > 0:
            alive[number] = size
        else:
            del alive[number]
    return alive


def _changes(requests: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The number of what begins to live or ends, and its bytes: below 0 at its end."""
    sizes: list[int] = []
    for request in requests:
        if request > 0:
            sizes.append(request)
            yield len(sizes), request
        else:
            yield -request, -sizes[-request - 1]


def step_timeline(
    requests: Sequence[int], origins: Sequence[Origin | None], roles: Mapping[int, PeakRole]
) -> StepTimeline:
    """Bytes of each role after every request, in at most `MAX_POSITIONS` points.

    Of neighbours the one at which most lived is kept, so that the peak is among the points.

    Args:
        requests, origins, roles: see `peak_parts`.
    """
    live: Counter[PeakRole] = Counter()
    num_before = next((at for at, origin in enumerate(origins) if origin is not None), len(origins))
    changes = list(_changes(requests))
    for number, size in changes[:num_before]:
        live[role_of(number, origins, roles)] += size
    events = changes[num_before:]
    group = max(1, -(-(len(events) + 1) // MAX_POSITIONS))
    points: list[tuple[int, Counter[PeakRole]]] = [(0, Counter(live))]
    phases: dict[str, int] = {}
    total = most = sum(live.values())
    for position, (number, size) in enumerate(events, 1):
        origin = origins[number - 1]
        if size > 0 and origin is not None:
            phases.setdefault(origin.phase, position)
        live[role_of(number, origins, roles)] += size
        total += size
        first_of_group = position // group != points[-1][0] // group
        if first_of_group:
            points.append((position, Counter(live)))
            most = total
        elif total > most:
            points[-1] = (position, Counter(live))
            most = total
    names = sorted({role for _, at in points for role in at if at[role]})
    return StepTimeline(
        positions=tuple(position for position, _ in points),
        live={role: tuple(at[role] for _, at in points) for role in names},
        phases=tuple(phases.items()),
        num_events=len(events),
    )
