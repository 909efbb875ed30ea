"""What lives at the peak of a step, from the requests for memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...records import PeakPlace, PeakRole
from .origins import Origin

MOST_PLACES = 10
ROLES: Mapping[str, PeakRole] = {
    "forward": "activations",
    "backward": "backward",
    "optimizer": "optimizer's temporaries",
}


def peak_parts(
    requests: Sequence[int], origins: Sequence[Origin | None], roles: Mapping[int, PeakRole]
) -> tuple[dict[PeakRole, int], tuple[PeakPlace, ...]]:
    """Bytes by what they are for, and the places that hold most of them.

    Args:
        requests, origins: see `StorageCount`.
        roles: of requests that are known to be more than memory, by their numbers.
    """
    by_role: Counter[PeakRole] = Counter()
    places: Counter[tuple[PeakRole, str, str]] = Counter()
    tensors: Counter[tuple[PeakRole, str, str]] = Counter()
    for number, size in _alive_at_peak(requests).items():
        origin, role = origins[number - 1], roles.get(number)
        if role is None and origin is not None:
            role = ROLES[origin.phase]
            place = (role, origin.module, origin.line)
            places[place] += size
            tensors[place] += 1
        by_role[role or "kept from before"] += size
    return dict(by_role.most_common()), tuple(
        PeakPlace(role=role, module=module, line=line, num_bytes=size, num_tensors=tensors[place])
        for place, size in places.most_common(MOST_PLACES)
        for role, module, line in (place,)
    )


def _alive_at_peak(requests: Sequence[int]) -> dict[int, int]:
    """Bytes of each request that lived when most did, by its number."""
    live = most = end = 0
    sizes: list[int] = []
    for at, request in enumerate(requests):
        if request > 0:
            sizes.append(request)
            live += request
            if live > most:
                most, end = live, at
        else:
            live -= sizes[-request - 1]
    alive: dict[int, int] = {}
    number = 0
    for request in requests[: end + 1]:
        if request > 0:
            number += 1
            alive[number] = request
        else:
            del alive[-request]
    return alive
