"""Peak bandwidths of links between GPUs, by the standards and data sheets that define them."""

from __future__ import annotations

import re
from dataclasses import dataclass

GBIT = 1e9 / 8


@dataclass(frozen=True, slots=True)
class Interconnect:
    """A link.

    Attributes:
        bytes_per_s: its line rate, one way.
        latency_s: of a message; 0 where nothing is known of it.
        source: where the rate comes from.
    """

    bytes_per_s: float
    latency_s: float
    source: str


def _nvlink(generation: int, gpu: str, both_ways: int) -> Interconnect:
    source = f"NVLink {generation}, NVIDIA {gpu} data sheet: {both_ways} GB/s both ways together"
    return Interconnect(both_ways / 2 * 1e9, 0.0, source)


def _pcie(generation: int, giga_transfers: int) -> Interconnect:
    """Sixteen lanes, of whose bits 128 of 130 are data."""
    rate = giga_transfers * 1e9 * 16 * 128 / 130 / 8
    source = f"PCI-SIG, PCI Express {generation}.0 x16: {giga_transfers} GT/s a lane, 128b/130b"
    return Interconnect(rate, 0.0, source)


def _ethernet(gigabit: int) -> Interconnect:
    return Interconnect(gigabit * GBIT, 0.0, f"IEEE 802.3, {gigabit} Gbit/s")


def _infiniband(name: str, gigabit: int) -> Interconnect:
    source = f"InfiniBand Trade Association, {name} 4x: {gigabit} Gbit/s"
    return Interconnect(gigabit * GBIT, 0.0, source)


INTERCONNECTS: dict[str, Interconnect] = {
    "nvlink": _nvlink(3, "A100", 600),
    "nvlink2": _nvlink(2, "V100", 300),
    "nvlink3": _nvlink(3, "A100", 600),
    "nvlink4": _nvlink(4, "H100", 900),
    "pcie3": _pcie(3, 8),
    "pcie4": _pcie(4, 16),
    "pcie5": _pcie(5, 32),
    **{f"{rate}GbE": _ethernet(rate) for rate in (1, 10, 25, 40, 100, 200, 400)},
    "hdr": _infiniband("HDR", 200),
    "ndr": _infiniband("NDR", 400),
}

_RATE = re.compile(r"([0-9.]+) *([kKmMgGtT]?)(B|b|[bB]its?)(/s|ps)?")
"""`B` are bytes, `b` are bits: links are sold by the bit, as in 100Gbps."""
_TIME = re.compile(r"([0-9.]+) *(s|ms|us|µs|ns)")
_POWERS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def interconnect(text: str) -> Interconnect:
    """A link by its name, or from `bandwidth,latency`.

    >>> interconnect("pcie4").bytes_per_s / 1e9
    31.50...
    >>> interconnect("12.5GB/s,1s")
    Interconnect(bytes_per_s=12500000000.0, latency_s=1.0, source='as given')

    Raises:
        ValueError: it is neither.
    """
    named = {name.lower(): link for name, link in INTERCONNECTS.items()}.get(text.strip().lower())
    if named is not None:
        return named
    bandwidth, comma, latency = text.partition(",")
    rate, time = _RATE.fullmatch(bandwidth.strip()), _TIME.fullmatch(latency.strip())
    if rate is None or (comma and time is None):
        raise ValueError(_unknown(text))
    try:
        units_per_byte = 1 if rate[3] == "B" else 8
        bytes_per_s = float(rate[1]) * _POWERS[rate[2].lower()] / units_per_byte
        latency_s = float(time[1]) * _SECONDS[time[2]] if time is not None else 0.0
    except ValueError:
        raise ValueError(_unknown(text)) from None
    if not 0 < bytes_per_s < 1e15 or not 0 <= latency_s < 60:
        raise ValueError(_unknown(text))
    return Interconnect(bytes_per_s, latency_s, "as given")


def _unknown(text: str) -> str:
    names = ", ".join(INTERCONNECTS)
    return f"{text!r} is no link: write {names}, or bandwidth,latency such as 12.5GB/s,5us"
