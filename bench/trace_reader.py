"""Compares trace readers on one large trace: CPU seconds and peak memory of whole processes.

    python bench/trace_reader.py --traces ../shared/traces

A real trace is repeated with shifted times, steps and correlations until it holds two million
events (about 490 MB of JSON), and each reader analyses it in a process of its own, one after the
other:

- `batchadvisor`: reads the file and computes all metrics;
- `torch-tb-profiler`: its own pipeline, as TensorBoard runs it;
- `HolisticTraceAnalysis`: load and three analyses, if it is installed;
- `json.loads`: only decodes, computes nothing.

Prints a table and writes it to `bench/results/`.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import importlib.util
import json
import logging
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from importlib import import_module
from pathlib import Path

TRACE = "a100_ddp2_resnet_nccl_rank0.json.gz"
HERE = Path(__file__).parent
READERS = ("batchadvisor", "json.loads", "torch-tb-profiler", "HolisticTraceAnalysis")


def enlarge(source: Path, target: Path, times: int) -> int:
    """Writes the trace `times` over, one copy after the other in time; returns its size."""
    with gzip.open(source, "rt", encoding="utf-8") as file:
        text = file.read()
    match = re.search(r'"traceEvents":\s*\[', text)
    end = text.rindex("\n  ],")
    header, body, footer = text[: match.end()], text[match.end() : end], text[end:]
    stamps = [float(stamp) for stamp in re.findall(r'"ts": ([0-9.]+)', body)]
    shift_ns = round((max(stamps) - min(stamps) + 1000) * 1000)
    numbers = re.compile(r'("ts": |"correlation": |"id": |"External id": |ProfilerStep#)([0-9.]+)')
    most = max(int(number) for number in re.findall(r'"(?:id|correlation)": ([0-9]+)', body)) + 1

    def shifted(copy: int) -> str:
        def replace(field: re.Match[str]) -> str:
            key, value = field.groups()
            if key == '"ts": ':
                nanoseconds = round(float(value) * 1000) + copy * shift_ns
                return f"{key}{nanoseconds // 1000}.{nanoseconds % 1000:03d}"
            step = 3 if key.startswith("Prof") else most
            return f"{key}{int(value) + copy * step}"

        return numbers.sub(replace, body)

    with target.open("w", encoding="utf-8") as file:
        file.write(header)
        for copy in range(times):
            file.write(shifted(copy) + ("," if copy < times - 1 else ""))
        file.write(footer)
    return target.stat().st_size


def read_ours(path: str) -> dict[str, object]:
    trace = import_module("batchadvisor.probes.trace.reader").read_trace(path)
    metrics = import_module("batchadvisor.probes.trace.metrics").Analysis(trace).result()
    device = metrics.devices[0]
    return {
        "steps": len(metrics.steps),
        "kernels": device.num_kernels,
        "kernel_pct": device.kernel_pct,
        "operators": sum(row.num_calls for row in metrics.operators),
    }


def read_json(path: str) -> dict[str, object]:
    with Path(path).open("rb") as file:
        return {"events": len(json.loads(file.read())["traceEvents"])}


def read_tensorboard_plugin(path: str) -> dict[str, object]:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    cache = import_module("torch_tb_profiler.io.cache").Cache(str(Path(path).parent))
    data = import_module("torch_tb_profiler.profiler.data")
    profile = data.RunProfileData.parse("worker0", "span", path, cache)
    profile.process()
    gpu = profile.gpu_metrics_parser.gpu_utilization
    return {"steps": len(profile.steps_names), "kernel_pct": next(x for x in gpu if x is not None)}


def read_hta(path: str) -> dict[str, object]:
    analysis = import_module("hta.trace_analysis").TraceAnalysis(
        trace_files={0: path}, trace_dir=str(Path(path).parent)
    )
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    return {"ranks": 1}


def child(reader: str, path: str) -> None:
    """Runs one reader and prints what it cost this process, its start included."""
    functions = dict(
        zip(READERS, (read_ours, read_json, read_tensorboard_plugin, read_hta), strict=True)
    )
    result = functions[reader](path)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "cpu_s": usage.ru_utime + usage.ru_stime,
                "peak_rss_bytes": usage.ru_maxrss * 1024,
                "result": result,
            }
        )
    )


def measure(reader: str, path: Path) -> dict[str, object]:
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, __file__, "--child", reader, "--file", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    wall = time.perf_counter() - start
    if run.returncode:
        return {"reader": reader, "error": (run.stderr.strip().splitlines() or ["killed"])[-1]}
    return {"reader": reader, "wall_s": wall, **json.loads(run.stdout.splitlines()[-1])}


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, default=HERE.parents[1] / "shared" / "traces")
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--readers", nargs="*", default=READERS, choices=READERS)
    parser.add_argument("--file", type=Path, help="a trace to read instead of an enlarged one")
    parser.add_argument("--no-results", action="store_true", help="print only")
    parser.add_argument("--child", choices=READERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, str(options.file))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "enlarged.pt.trace.json"
        if options.file is None:
            enlarge(options.traces / TRACE, path, options.times)
        size = path.stat().st_size
        rows = [
            measure(reader, path)
            for reader in options.readers
            if reader != "HolisticTraceAnalysis" or importlib.util.find_spec("hta")
        ]
    name = f"{TRACE} x {options.times}" if options.file is None else options.file.name
    print(f"{name}: {size / 1e6:.0f} MB of JSON")
    print(f"{'reader':24}{'CPU s':>8}{'wall s':>8}{'peak MB':>9}{'CPU x':>7}{'memory x':>10}")
    base = next((row for row in rows if row["reader"] == "batchadvisor" and "cpu_s" in row), None)
    for row in rows:
        if "error" in row:
            print(f"{row['reader']:24}{row['error']}")
            continue
        peak = row["peak_rss_bytes"] / 1e6
        ratios = f"{'-':>7}{'-':>10}"
        if base is not None:
            cpu, memory = (row[field] / base[field] for field in ("cpu_s", "peak_rss_bytes"))
            ratios = f"{cpu:7.1f}{memory:10.1f}"
        print(f"{row['reader']:24}{row['cpu_s']:8.1f}{row['wall_s']:8.1f}{peak:9.0f}{ratios}")
    if not options.no_results:
        target = HERE / "results" / f"trace_reader_{platform.machine()}.json"
        target.parent.mkdir(exist_ok=True)
        packages = ("msgspec", "numpy", "torch-tb-profiler", "HolisticTraceAnalysis", "pandas")
        record = {
            "trace": TRACE if options.file is None else options.file.name,
            "times": options.times if options.file is None else 1,
            "json_bytes": size,
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "num_cores": os.cpu_count(),
            "versions": {package: version(package) for package in packages},
            "rows": rows,
        }
        target.write_text(json.dumps(record, indent=2) + "\n")
        print(f"wrote {target}")


if __name__ == "__main__":
    main()
