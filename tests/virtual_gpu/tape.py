"""What host and device do, taken down and written as torch.profiler writes a trace of a GPU."""

import json

HOST, MAIN, STREAM = 100, 1, 7
PROPERTIES = {
    "id": 0, "name": "Virtual GPU", "computeMajor": 9, "computeMinor": 0, "numSms": 100,
    "warpSize": 32, "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 167936,
}  # fmt: skip


class Tape:
    """The events of a trace; each kernel has so many blocks for 100 multiprocessors."""

    def __init__(self, blocks=400):
        self._blocks = blocks
        self._events = []
        self._num_steps = 0
        self._began_ns = 0
        self._step_ns = None
        self._correlation = 0

    def kernel(self, call_ns, returned_ns, start_ns, end_ns):
        """A kernel, and the call that launched it."""
        self._call("cudaLaunchKernel", call_ns, returned_ns)
        shape = {"registers per thread": 32, "shared memory": 0, "block": [256, 1, 1]}
        blocks = {"grid": [self._blocks, 1, 1], "blocks per SM": self._blocks / 100}
        self._work("kernel", "gemm_kernel", start_ns, end_ns, **shape, **blocks)

    def copy(self, call_ns, returned_ns, start_ns, end_ns, size):
        """A copy, and the call that asked for it."""
        self._call("cudaMemcpyAsync", call_ns, returned_ns)
        name = "Memcpy HtoD (Pinned -> Device)"
        self._work("gpu_memcpy", name, start_ns, end_ns, bytes=size)

    def wait(self, start_ns, end_ns):
        """The host waits for the device."""
        self._call("cudaStreamSynchronize", start_ns, end_ns)

    def fetch(self, start_ns, end_ns):
        """The script waits for its loader."""
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        self._span("user_annotation", name, start_ns, end_ns)

    def operator(self, start_ns, end_ns):
        """The host computes: dispatch and Python."""
        self._span("cpu_op", "aten::mm", start_ns, end_ns)

    def step(self, now_ns, *, last=False):
        """A step of the profiler ends, and but for the last another one begins.

        With the first recording begins: what began before is left out, so that kernels of steps
        before have no call.
        """
        if self._step_ns is None:
            self._began_ns = now_ns
        else:
            name = f"ProfilerStep#{self._num_steps}"
            self._span("user_annotation", name, self._step_ns, now_ns)
            self._num_steps += 1
        self._step_ns = None if last else now_ns

    def write(self, path):
        """The trace as a file."""
        document = {
            "schemaVersion": 1,
            "deviceProperties": [PROPERTIES],
            "traceEvents": [event for event in self._events if 1e3 * event["ts"] >= self._began_ns],
        }
        path.write_text(json.dumps(document))

    def _call(self, name, start_ns, end_ns):
        self._correlation += 1
        self._span("cuda_runtime", name, start_ns, end_ns, correlation=self._correlation)

    def _work(self, kind, name, start_ns, end_ns, **more):
        args = {"device": 0, "stream": STREAM, "correlation": self._correlation, **more}
        self._span(kind, name, start_ns, end_ns, 0, **args)

    def _span(self, kind, name, start_ns, end_ns, pid=HOST, **args):
        tid = MAIN if pid == HOST else STREAM
        span = {"ph": "X", "cat": kind, "name": name, "pid": pid, "tid": tid, "args": args}
        self._events.append(span | {"ts": start_ns / 1e3, "dur": (end_ns - start_ns) / 1e3})
