"""Reads the snapshots that `torch.cuda.memory._dump_snapshot()` wrote; needs no torch.

`pickled.py` reads the file without running anything in it, `snapshot.py` checks what it holds,
`stacks.py` says what a stack tells. `state.py`, `replay.py` and `steps.py` count.
"""
