"""No file, however damaged, makes the reader fail with anything but its one error.

Recorded traces are mutated with a fixed seed; `BATCHADVISOR_FUZZ_CASES` says how many mutants there
are in all.
"""

import gzip
import json
import os
import random
import re

import msgspec
import pytest
from batchadvisor.errors import UsageError
from batchadvisor.probes.trace import flames
from batchadvisor.probes.trace.anatomy import anatomy_of
from batchadvisor.probes.trace.memory_curves import CURVE_POINTS, memory_curves
from batchadvisor.probes.trace.metrics import Analysis
from batchadvisor.probes.trace.reader import read_trace
from batchadvisor.probes.trace.repair import repair
from batchadvisor.probes.trace.summary import profile_of
from batchadvisor.reports.builder.sections.profiled_memory import memory_charts, memory_table
from batchadvisor.reports.data import speedscope
from batchadvisor.reports.html.svg import shapes

from .test_flames import check_speedscope

CASES = int(os.environ.get("BATCHADVISOR_FUZZ_CASES", "320"))
MOST_BYTES = 40_000
BASES = (
    "small/cpu_torch213_dataloader.pt.trace.json.gz",
    "small/a100_alexnet_cuda_sync_no_steps.json.gz",
    "small/gp100_gpu_user_annotation.json.gz",
    "small/mi250_rocm62_minitoy_train.json.gz",
    "small/malformed_torch213_unescaped_quotes.json",
    "small/large_integer_args.json.gz",
    "v100_torch18_gpu_metrics_input.json",
    "v100_8rank_dlrm/rank3.json.gz",
)
TOKENS = (
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"NaN", b"-Infinity", b"null", b"-1", b"\xff",
    b"1e999", b"99999999999999999999", b'"ts"', b'"dur": -5', b'"args": 3', b"},{", b'"\\ud800"',
    b'{"ph": "X"', b'"cat": "kernel"', b'"traceEvents": [', b"\x00", b"0.0001", b"1" * 5000,
)  # fmt: skip


def shortened(data: bytes) -> bytes:
    """The first events of a big trace and its end."""
    if len(data) <= MOST_BYTES:
        return data
    head = data[:MOST_BYTES].rindex(b"},")
    return data[: head + 1] + data[data.rindex(b"\n  ]") :]


def mutate(data: bytes, chance: random.Random) -> bytes:
    mutant = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 40))):
        at = chance.randrange(len(mutant) + 1)
        span = chance.choice((1, 1, 4, 60, 3000))
        match chance.randrange(6):
            case 0:
                mutant[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del mutant[at : at + span]
            case 2:
                mutant[at:at] = mutant[at : at + span]
            case 3:
                mutant[at:at] = chance.choice(TOKENS)
            case 4:
                token = chance.choice(TOKENS)
                mutant[at : at + len(token)] = token
            case _:
                if chance.random() < 0.3:
                    del mutant[at:]
    return bytes(mutant)


def deep(data: bytes, chance: random.Random) -> bytes:
    """Arguments nested so deeply that no decoder follows, closed or not."""
    depth = chance.choice((30, 500, 1100, 20_000))
    start, end = chance.choice(((b"[", b"]"), (b'{"a": ', b"}"), (b'[{"a": ', b"}]")))
    nested = start * depth + b"1" + end * (depth if chance.random() < 0.8 else depth - 1)
    places = [match.end() for match in re.finditer(rb'"args"\s*:\s*\{', data)]
    at = chance.choice(places) if places else len(data) // 2
    return data[:at] + b'"deep": ' + nested + b", " + data[at:]


def as_lines(data: bytes, chance: random.Random) -> bytes:
    """The events one a line, as loggers write them, with some of the document around them."""
    try:
        document = json.loads(data)
    except ValueError:  # a base that is damaged on purpose
        return data.replace(b"},", b"}\n")
    events = document if isinstance(document, list) else document["traceEvents"]
    texts = [json.dumps(event).encode() for event in events[:200]]
    head, between, tail = chance.choice(
        ((b"", b"\n", b"\n"), (b"[", b"\n", b"]"), (b'{"traceEvents": [', b"\n", b"]}"),
         (b'{"traceEvents": [\n', b",\n", b""), (b'{"schemaVersion": 1}\n', b"\r\n", b""))
    )  # fmt: skip
    return head + between.join(texts) + tail


def blank(data: bytes, chance: random.Random) -> bytes:
    """White space where a token ends."""
    at = data.find(b",", chance.randrange(len(data)))
    space = chance.choice((b" ", b"\n", b"\t \r")) * chance.choice((70, 70_000, 1 << 20))
    return data[: max(at, 0)] + space + data[max(at, 0) :]


def zipped(data: bytes, chance: random.Random) -> bytes:
    """A gzip file with something about it that its readers may not expect."""
    packed = gzip.compress(data, 1)
    half = len(data) // 2
    match chance.randrange(8):
        case 0:  # members, an empty one among them
            return gzip.compress(data[:half], 1) + gzip.compress(b"") + gzip.compress(data[half:])
        case 1:
            return packed + chance.choice((b"\0" * 700, b"\x1f", b"\x1f\x8b\x08", b"garbage"))
        case 2:
            return packed[: chance.randrange(len(packed))]
        case 3:  # the checksum, or the length behind it
            return packed[:-8] + chance.randbytes(8)
        case 4:  # flags: fields of the header that are not there
            return packed[:3] + bytes([chance.randrange(256)]) + packed[4:]
        case 5:
            return gzip.compress(packed, 1)
        case 6:
            return mutate(packed, chance)
        case _:
            return packed[:10] + chance.randbytes(chance.randrange(1, 50)) + packed[10:]


SHAPES = (deep, as_lines, blank)


def mutant_of(data: bytes, chance: random.Random) -> tuple[bytes, str]:
    """(content, suffix): the trace in an odd shape or not, damaged or not, packed or not."""
    if chance.random() < 0.4:
        data = chance.choice(SHAPES)(data, chance)
    if chance.random() < 0.7:
        data = mutate(data, chance)
    return (zipped(data, chance), ".json.gz") if chance.random() < 0.25 else (data, ".json")


def check(path) -> str:
    """Analyses the file, repairs it, and says how that went."""
    try:
        analysis = Analysis(read_trace(path))
    except UsageError:
        with pytest.raises(UsageError, match=re.escape(str(path))):
            repair_and_analyse(path)
        return "refused"
    metrics = analysis.result()
    for step in anatomy_of(analysis, path.name).steps:
        assert sum(step.way_ns.values()) in (0, step.window_ns)
    json.dumps(str(metrics.losses))
    profile = profile_of(metrics, path.name, memory=memory_curves(analysis))
    check_memory(analysis, profile.memory)
    for share in (profile.busy_pct, profile.kernel_pct, profile.input_wait_pct):
        assert share is None or 0 <= share <= 100.000001
    assert metrics.window_s >= 0
    for device in metrics.devices:
        if device.idle is not None:
            total, *parts, _ = msgspec.structs.astuple(device.idle)
            assert sum(parts) == pytest.approx(total)
    check_stacks(path)
    before = path.read_bytes()
    changed = repair(path)
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    document = json.loads(data, parse_int=len)  # any number of digits is valid
    events = document if isinstance(document, list) else document["traceEvents"]
    assert isinstance(events, list)
    after = path.read_bytes()
    assert repair(path) == 0, "a repaired file is valid"
    assert path.read_bytes() == after
    if changed == 0 and not metrics.losses.any:
        return "valid" if after == before else "header repaired"
    return "repaired"


def check_memory(analysis, curves):
    """Whatever is in a trace, a curve is short, in order, inside its step, and has its peak."""
    assert len({curve.device for curve in curves}) == len(curves)
    for curve in curves:
        assert 0 < len(curve.time_ns) <= CURVE_POINTS + 1
        assert list(curve.time_ns) == sorted(curve.time_ns)
        assert 0 <= curve.time_ns[0] <= curve.time_ns[-1] <= curve.step_ns
        assert curve.peak_bytes == max(curve.allocated_bytes)
        assert curve.relative or min(curve.allocated_bytes) >= 0
        assert curve.peak_operator in ("", *analysis.trace.names)
    for chart in memory_charts(curves, "fuzz"):
        assert len({len(chart.x), *(len(line.values) for line in chart.series)}) == 1
        assert list(chart.x) == sorted(chart.x)
        assert shapes(chart)
    if curves:
        assert memory_table([("fuzz", curve) for curve in curves]).rows


def check_stacks(path):
    """Whatever is in a trace, blocks lie inside each other, and what opens closes."""
    analysis = Analysis(read_trace(path))
    for flame in flames.flames_of(analysis):
        assert all(block.start_s >= 0 for block in flame.blocks)
        ends = [block.start_s + block.total_s for block in flame.blocks]
        assert max(ends, default=0.0) <= flame.total_s * (1 + 1e-9)
    stacks = flames.stacks_of(analysis)
    if stacks.threads or stacks.launched:
        check_speedscope(speedscope.render(stacks, path.name))


def repair_and_analyse(path):
    """A file that cannot be read is not made into one that can."""
    repair(path)
    Analysis(read_trace(path)).result()


@pytest.mark.timeout(300 + CASES)  # a busy machine takes a second for some
@pytest.mark.parametrize("base", BASES)
def test_mutated_traces(base, recorded, tmp_path):
    packed = (recorded / base).read_bytes()
    plain = shortened(gzip.decompress(packed) if base.endswith(".gz") else packed)
    chance = random.Random(f"batchadvisor {base}")
    outcomes: dict[str, int] = {}
    for number in range(max(CASES // len(BASES), 1)):
        content, suffix = mutant_of(plain, chance)
        path = tmp_path / f"{number}{suffix}"
        path.write_bytes(content)
        try:
            outcome = check(path)
        except BaseException:
            (tmp_path / "failing.bin").write_bytes(content)
            print(f"mutant {number}: it is {tmp_path / 'failing.bin'}")  # noqa: T201
            raise
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        path.unlink()
    assert "repaired" in outcomes
