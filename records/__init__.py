"""The records: everything that one room tells another, and what stands on disk.

Frozen, keyword-only structs (each class says both, since type checkers do not inherit them).
Units stand in the names (`_s`, `_bytes`, `_pct`, `_per_s`; `num_` for counts). What could not be
measured is `None`, and the struct's `unavailable` says why, keyed by the field's name; it is never
0, -1 or NaN.
"""

from .advice import (
    Advice,
    Choice,
    Evidence,
    Finding,
    Limit,
    MemoryLaw,
    Tail,
    TimeLaw,
    Training,
    Verdict,
)
from .analysis import Analysis, Collectives, RankTimes, StepTimes, TraceReport
from .base import SCHEMA_VERSION, Record, Spread
from .goal import Goal, GoalKind
from .observed import NoiseScale, Observed, SizeSeen
from .run import DeviceInfo, Fault, RunRecord, RunState, Versions
from .script import (
    BatchSizeSource,
    Discovery,
    FileTouched,
    LoaderInfo,
    NormLayers,
    OptimizerInfo,
    ScriptInfo,
    SourceLine,
)
from .trial import (
    Counters,
    IdleShares,
    KernelTime,
    Memory,
    OperatorTime,
    Outcome,
    Profile,
    Purpose,
    TailCheck,
    Trial,
    TrialKind,
    TrialRequest,
)

__all__ = [
    "SCHEMA_VERSION",
    "Advice",
    "Analysis",
    "BatchSizeSource",
    "Choice",
    "Collectives",
    "Counters",
    "DeviceInfo",
    "Discovery",
    "Evidence",
    "Fault",
    "FileTouched",
    "Finding",
    "Goal",
    "GoalKind",
    "IdleShares",
    "KernelTime",
    "Limit",
    "LoaderInfo",
    "Memory",
    "MemoryLaw",
    "NoiseScale",
    "NormLayers",
    "Observed",
    "OperatorTime",
    "OptimizerInfo",
    "Outcome",
    "Profile",
    "Purpose",
    "RankTimes",
    "Record",
    "RunRecord",
    "RunState",
    "ScriptInfo",
    "SizeSeen",
    "SourceLine",
    "Spread",
    "StepTimes",
    "Tail",
    "TailCheck",
    "TimeLaw",
    "TraceReport",
    "Training",
    "Trial",
    "TrialKind",
    "TrialRequest",
    "Verdict",
    "Versions",
]
