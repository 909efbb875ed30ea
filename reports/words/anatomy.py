"""What the kinds of spans in the picture of a step are called."""

from __future__ import annotations

IDLE = {
    "input": "DataLoader",
    "host": "Python, dispatch",
    "launch": "launching",
    "call": "other calls",
    "synchronize": "synchronising",
    "launch_latency": "launch latency",
    "dependency": "dependencies",
    "unknown": "unknown launch",
    "tail": "tail",
}
"""Causes of idle time, as the GPU summary calls them, in its order."""

KINDS = {
    **IDLE,
    "compute": "computing",
    "communication": "communication",
    "copy": "copies and sets",
    "exposed communication": "exposed communication",
    "exposed copy": "exposed copies",
    "operator": "operator",
    "annotation": "annotation",
    "code": "Python function",
}
