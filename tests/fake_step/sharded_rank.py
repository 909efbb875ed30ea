"""One rank of test_sharded.py: `python sharded_rank.py RANK RANKS PORT MODEL...`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.fake_step.test_sharded import rank_of

    rank_of(*map(int, sys.argv[1:4]), sys.argv[4:])
