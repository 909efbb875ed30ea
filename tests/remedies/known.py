"""A script as the part in its process describes it."""

from batchadvisor.features.remedies.settings import UsedAlready
from batchadvisor.records import SourceLine

A_SCRIPT = UsedAlready(
    device="cpu",
    num_workers=0,
    prefetch_factor=None,
    persistent_workers=False,
    pin_memory=False,
    autocast="",
    compiled=False,
    optimizer_classes=("SGD",),
    optimizers=("single",),
    can_fuse=True,
    can_foreach=True,
    optimizer_share=None,
    num_convolutions=0,
    channels_last=False,
    layout_by_hand=False,
    tf32=False,
    benchmark=False,
    checkpoints=False,
    expandable=False,
    blocks="",
    by_order=None,
    why_no_order="its samples have one length",
    drops=False,
    threads=2,
    num_cores=2,
    cores_at_start=2,
    modules=("Sequential",),
    call_place=SourceLine(file="train.py", line=30),
    backward_place=SourceLine(file="train.py", line=32),
    optimizer_place=SourceLine(file="train.py", line=20),
    loader_place=SourceLine(file="train.py", line=21),
    lines={},
)
