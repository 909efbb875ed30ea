"""Memory over the course of a step, from the requests for memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...records import PeakRole, StepTimeline
from .origins import Origin
from .peak_parts import role_of

MAX_POSITIONS = 240


def step_timeline(
    requests: Sequence[int], origins: Sequence[Origin | None], roles: Mapping[int, PeakRole]
) -> StepTimeline:
    """Bytes of each role after every request, in at most `MAX_POSITIONS` points.

    Of neighbours the one at which most lived is kept, so that the peak is among the points.

    Args:
        requests, origins, roles: see `peak_parts`.
    """
    live: Counter[PeakRole] = Counter()
    sizes: list[int] = []
    num_before = next((at for at, origin in enumerate(origins) if origin is not None), len(origins))
    for number, size in enumerate(requests[:num_before], 1):
        sizes.append(size)
        live[role_of(number, origins, roles)] += size
    events = requests[num_before:]
    group = max(1, -(-(len(events) + 1) // MAX_POSITIONS))
    points: list[tuple[int, Counter[PeakRole]]] = [(0, Counter(live))]
    phases: dict[str, int] = {}
    total = most = sum(live.values())
    for position, request in enumerate(events, 1):
        if request > 0:
            sizes.append(request)
            number, size = len(sizes), request
            origin = origins[number - 1]
            if origin is not None:
                phases.setdefault(origin.phase, position)
        else:
            number, size = -request, -sizes[-request - 1]
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
