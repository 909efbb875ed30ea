"""The pure rooms import where there is no torch."""

import subprocess
import sys

from .test_layers import feature_of, modules, rule_of

PURE = ("advisor/", "reports/", "probes/trace/", "probes/memory/")
IMPORT_ALL = """
import importlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is blocked: " + name)

sys.meta_path.insert(0, Blocked())
for name in sys.argv[1:]:
    importlib.import_module(name)
assert "torch" not in sys.modules
print(len(sys.argv) - 1)
"""


def import_without_torch(names, folder):
    command = [sys.executable, "-c", IMPORT_ALL, *names]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def _is_bound(path):
    """Whether a module of a feature keeps the rules of a room without torch."""
    rule = rule_of(path)
    return rule is not None and "torch" not in rule[0]


class TestWithoutTorch:
    def test_pure_rooms_import(self, tmp_path):
        names = [
            "batchadvisor." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            for path in modules()
            if path.startswith(PURE) or (feature_of(path) and _is_bound(path))
        ]
        done = import_without_torch(names, tmp_path)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) == len(names) > 30

    def test_the_block_works(self, tmp_path):
        done = import_without_torch(["batchadvisor.probes.doors.loader"], tmp_path)
        assert done.returncode == 1
        assert "torch is blocked" in done.stderr
