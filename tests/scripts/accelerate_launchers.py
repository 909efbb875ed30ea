"""The same training through accelerate's launchers for notebooks and for debugging."""

import sys

import accelerate
from accelerate_ranks import main

if __name__ == "__main__":
    name, port = sys.argv[1:]
    if name == "notebook":
        accelerate.notebook_launcher(main, num_processes=2, use_port=port)
    else:
        accelerate.debug_launcher(main, num_processes=2)
