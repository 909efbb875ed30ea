"""The hooks into torch, each time in a process of its own: they are never undone."""

import json
import subprocess
import sys

import pytest
import torch

START = """
import json, os, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from batchadvisor.probes.patches import install
from batchadvisor.probes.steering import Steering

class Conductor:
    sizes = iter([5, 50, 3])
    discovery = None
    seen = []
    elsewhere = 0

    def found(self, discovery, device):
        self.discovery = discovery
        self.boundary()

    def boundary(self, num_steps=1):
        size = next(self.sizes, None)
        if size is None:
            told = [self.seen, self.discovery.primary.num_samples,
                    self.discovery.native_batch_size, self.discovery.micro_batches,
                    self.discovery.primary_loader, self.discovery.parameter_device]
            print(json.dumps(told), flush=True)
            os._exit(0)
        steering.ask(size)

    def arrived(self, num_samples, proof, wait_s, *, primary):
        self.seen.append([num_samples, proof, primary])

    def stepped_elsewhere(self):
        self.elsewhere += 1

    def discovering(self, num_steps):
        pass

    def cannot_steer(self, reason, remedy, *, usage=False, door=None):
        print(json.dumps([reason, usage]), flush=True)
        os._exit(0)

def step(batch):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
    optimizer.step()

# torch is imported once, with all that a first step imports; each case gets a fork.
model = nn.Linear(20, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step((torch.zeros(2, 20), torch.zeros(2, 1)))
for line in sys.stdin:
    code, loader = json.loads(line)
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        print(json.dumps("the case ended early"), flush=True)
        continue
    torch.set_num_threads(1)
    saved = []
    steering = Steering(Conductor(), loader=loader, batch_cap=None, arguments=(), started_s=0.0)
    install(steering, saved.append)
    data = TensorDataset(torch.randn(100, 20), torch.randn(100, 1))
    model = nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        exec(code)
    finally:
        os._exit(0)
"""
STEERED = [[5, "shape", True], [50, "shape", True], [3, "shape", True]]


@pytest.fixture(scope="module")
def server():
    process = subprocess.Popen(
        [sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.stdin.close()
    process.stdout.close()
    assert process.wait() == 0


@pytest.fixture
def run(server, tmp_path):
    """What the conductor said, for a script that trains on `data` with `step`."""

    def _run(code, loader=None):
        code = f"os.chdir({str(tmp_path)!r})\n{code}"
        server.stdin.write(json.dumps([code, loader]) + "\n")
        server.stdin.flush()
        told = json.loads(server.stdout.readline())
        if told != "the case ended early":
            server.stdout.readline()
        return told

    return _run


class TestSteered:
    @pytest.mark.parametrize(
        "code",
        [
            "loader = DataLoader(data, batch_size=8)\nfor batch in loader: step(batch)",
            # Nothing holds the loader but its iterator.
            "for batch in DataLoader(data, batch_size=8): step(batch)",
            "it = iter(DataLoader(data, 8))\nwhile True: step(next(it))",
        ],
        ids=["named", "in the loop's head", "iterator"],
    )
    def test_loops(self, run, code):
        assert run(code) == [STEERED, 100, 8, 1, 0, "cpu"]

    @pytest.mark.parametrize(
        "schedule",
        [
            "OneCycleLR(optimizer, max_lr=0.1, total_steps=2)",
            "LambdaLR(optimizer, lambda n: [1, 0.5, 0.1][n])",
            "LambdaLR(optimizer, lambda n: (1 - n / 2) ** 0.9)",
            "LambdaLR(optimizer, lambda n: 1 - n / 2)",
        ],
        ids=["raises", "a list", "complex", "negative"],
    )
    def test_a_schedule_that_runs_out(self, run, schedule):
        code = (
            f"schedule = torch.optim.lr_scheduler.{schedule}\n"
            "for batch in DataLoader(data, batch_size=8):\n"
            "    step(batch); schedule.step()\n"
            "    assert optimizer.param_groups[0]['lr'] >= 0"
        )
        assert run(code)[0] == STEERED

    @pytest.mark.parametrize(
        ("code", "micro_batches", "steps_per_batch", "pool"),
        [
            ("while True:\n for batch in [next(it) for _ in range(3)]: step(batch)", 1, 1, 3),
            ("for batch in it: step(batch), step(batch)", 1, 2, 1),
            # Two optimizers of one class: torch hooks the step of each class that it met.
            ("optimizer = Careful(model.parameters())\nfor batch in it: step(batch)", 1, 1, 1),
        ],
        ids=["pool", "twice", "calls the class above"],
    )
    def test_steps_are_counted(self, run, code, micro_batches, steps_per_batch, pool):
        code = (
            "class Careful(torch.optim.SGD):\n"
            "    def step(self, closure=None): return super().step(closure)\n"
            "def found(one, device):\n"
            "    told = [one.micro_batches, one.steps_per_batch, one.pool]\n"
            "    print(json.dumps(told), flush=True)\n"
            "    os._exit(0)\n"
            "steering._conductor.found = found\n"
            f"it = iter(DataLoader(data, batch_size=4))\n{code}"
        )
        assert run(code) == [micro_batches, steps_per_batch, pool]

    @pytest.mark.parametrize("places", [0, 4])
    def test_batches_that_a_thread_takes_ahead(self, run, places):
        """Their number is known, so that no window counts them: they have the size before."""
        code = (
            "import queue, threading, time\n"
            f"ready = queue.Queue({places})\n"
            "def read():\n"
            "    for batch in DataLoader(data, batch_size=8): ready.put(batch)\n"
            "if ready.maxsize:\n"
            "    threading.Thread(target=read, daemon=True).start()\n"
            "    take = ready.get\n"
            "else: take = iter(DataLoader(data, batch_size=8)).__next__\n"
            "while not steering.steering:\n"
            "    batch = take()\n"
            "    time.sleep(0.05)\n"
            "    step(batch)\n"
            "print(json.dumps(steering._conductor.num_ahead), flush=True)\n"
            "os._exit(0)"
        )
        found = run(code)
        assert found in (range(3, 7) if places else (0,))

    def test_a_second_loader_that_cannot_be_steered(self, run):
        """None of its batches is dropped for its size."""
        code = (
            "one = DataLoader(data, batch_size=8)\n"
            "two = DataLoader([torch.full((3,), n) for n in range(99)], batch_size=None)\n"
            "taken = []\n"
            "for a, n in zip(one, two):\n"
            "    step(a)\n"
            "    taken.append(int(n[0]))\n"
            "    assert taken == list(range(len(taken)))"
        )
        assert [one for one in run(code)[0] if one[2]] == STEERED

    @pytest.mark.parametrize("num", [1, 2, 4])
    def test_a_loader_made_anew_for_each_epoch(self, run, num):
        """Its epochs are cut short, so that an endless one does not keep the script in it."""
        code = (
            "from itertools import islice\n"
            "while True:\n"
            "    one = DataLoader(data, batch_size=8)\n"
            "    two = DataLoader(data, batch_size=16)\n"
            f"    for a, b in islice(zip(one, two), {num}): step(a)"
        )
        # From a file, since it is the line that tells which loader follows which.
        seen = run(f"exec(compile({code!r}, os.path.abspath('train.py'), 'exec'))")[0]
        assert [one for one in seen if one[2]] == STEERED
        assert [one[0] for one in seen if not one[2]] == [10, 100, 6]

    def test_batches_that_a_generator_fetches_without_gradients(self, run):
        """Augmentations on the device are written so; a batch a step is what tells."""
        code = (
            "@torch.no_grad()\n"
            "def augmented(loader):\n"
            "    for x, y in loader: yield x + 1, y\n"
            "for epoch in range(9):\n"
            "    for batch in augmented(DataLoader(data, batch_size=8)): step(batch)"
        )
        assert run(code) == [STEERED, 100, 8, 1, 0, "cpu"]

    def test_another_optimizer_from_a_step_on(self, run):
        """The first would be waited for until all batches were taken for batches without a step."""
        code = (
            "for n, batch in enumerate(DataLoader(data, batch_size=8)):\n"
            "    if n == 4: optimizer = torch.optim.Adam(model.parameters())\n"
            "    step(batch)"
        )
        assert run(code) == [STEERED, 100, 8, 1, 0, "cpu"]

    def test_a_phase_with_another_model(self, run):
        code = (
            "for n, batch in enumerate(DataLoader(data, batch_size=8)):\n"
            "    if n == 4:\n"
            "        model = nn.Linear(20, 1)\n"
            "        optimizer = torch.optim.Adam(model.parameters())\n"
            "    step(batch)"
        )
        assert run(code)[0] == STEERED  # the first, which is gone, is not waited for

    def test_models_of_finished_phases_are_let_go(self, run):
        """Else their memory would be in the peaks of all phases after them."""
        code = (
            "import weakref\n"
            "steering._conductor.sizes = iter([5] * 99)\n"
            "weights = []\n"
            "for phase in range(3):\n"
            "    model = nn.Linear(20, 1)\n"
            "    weights.append(weakref.ref(model.weight))\n"
            "    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)\n"
            "    for _, batch in zip(range(3), DataLoader(data, batch_size=8)):\n"
            "        step(batch)\n"
            "        del batch\n"
            "    infos = steering._optimizers.infos(steering._cycles.optimizers)\n"
            "    info = infos[1]\n"
            "told = [one() is not None for one in weights]\n"
            "print(json.dumps([told, info.num_parameters, info.learning_rate, info.trains,\n"
            "    infos[3].trains]), flush=True)\n"
            "os._exit(0)"
        )
        assert run(code) == [[False, False, True], 21, 0.5, False, True]

    @pytest.mark.parametrize(
        ("loop", "elsewhere"),
        [
            ("step(next(one)); step(next(two))", True),
            ("step(next(one)); step(next(alone))", True),
            # Another batch of the same step, before and after the primary's.
            ("batch = next(one); next(alone); step(batch)", False),
            ("next(alone); step(next(one))", False),
            ("step(next(one)); next(two) if n % 3 == 0 else 0", False),  # validation
        ],
        ids=["tasks", "a task that cannot be steered", "fed after", "fed before", "validated"],
    )
    def test_steps_of_other_tasks(self, run, loop, elsewhere):
        """They are inside the primary's steps, with batches of the script's own size."""
        code = (
            "def endless(*options):\n"
            "    while True: yield from DataLoader(data, *options)\n"
            "one, two, alone = endless(8), endless(4), endless(None)\n"
            "steering._conductor.sizes = iter([5] * 99)\n"
            f"for n in range(20): {loop}\n"
            "assert steering.steering\n"
            "print(json.dumps(steering._conductor.elsewhere > 9), flush=True)\n"
            "os._exit(0)"
        )
        chosen = 1 if loop.startswith("next(alone)") else None
        assert run(code, loader=chosen) is elsewhere

    def test_chosen_loader(self, run):
        code = (
            "one, two = DataLoader(data, batch_size=8), DataLoader(data, batch_size=4)\n"
            "for a, b in zip(one, two): step(a); step(b)"
        )
        seen, _, native, _, primary, _ = run(code, loader=1)
        assert (native, primary) == (4, 1)
        assert [one[0] for one in seen if one[2]] == [5, 50, 3]
        # The other keeps its ratio of two to one; it is fetched first, so it follows a step later.
        assert [one[0] for one in seen if not one[2]][:3] == [10, 10, 100]

    @pytest.mark.parametrize(
        ("loader", "part"), [(7, "numbered from 0"), (0, "yields nothing between")]
    )
    def test_a_loader_that_cannot_be_chosen(self, run, loader, part):
        code = (
            "other = DataLoader(data, batch_size=4)\n"
            "for batch in DataLoader(data, batch_size=8): step(batch)"
        )
        reason, usage = run(code, loader=loader)
        assert part in reason
        assert usage

    def test_steps_without_batches(self, run):
        reason, usage = run("while True: step(data[:8])")
        assert "without fetching a batch" in reason
        assert not usage

    def test_steps_without_batches_and_a_validation(self, run):
        code = (
            "for n in range(99):\n"
            "    step(data[:8])\n"
            "    if n % 50 == 0:\n"
            "        with torch.no_grad(): list(DataLoader(data, batch_size=50))"
        )
        reason, usage = run(code)
        assert "without fetching a batch" in reason
        assert not usage

    def test_a_dataset_that_batches_itself(self, run):
        code = "for _ in range(9):\n  for row in DataLoader(data, batch_size=None): step(row)"
        reason, _ = run(code)
        assert "the dataset batches itself" in reason


SAVED = "\nprint(json.dumps([str(getattr(one, 'name', one)) for one in saved]), flush=True)"
READ_BACK = "\nprint(json.dumps([torch.equal(there, data.tensors[0]), len(saved)]), flush=True)"


class TestSave:
    @pytest.mark.parametrize(
        "code",
        ["torch.save(model, 'model.pt')", "torch.save(obj=model, f='model.pt')"],
        ids=["positional", "keyword"],
    )
    def test_no_file_is_written(self, run, tmp_path, code):
        assert run(code + SAVED) == ["model.pt"]
        assert list(tmp_path.iterdir()) == []

    def test_nothing_goes_into_an_open_file(self, run, tmp_path):
        code = "with open('model.pt', 'wb') as file: torch.save(model, file)"
        assert run(code + SAVED) == ["model.pt"]
        assert (tmp_path / "model.pt").stat().st_size == 0

    @pytest.mark.parametrize("new", [True, False], ids=["zip", "older format"])
    @pytest.mark.parametrize("name", ["model.pt", "here/../model.pt"])
    def test_a_real_one_that_is_opened_anew_stays(self, run, tmp_path, name, new):
        (tmp_path / "here").mkdir()
        path = tmp_path / "model.pt"
        torch.save({"of": "a real training"}, path, _use_new_zipfile_serialization=new)
        content, changed_ns = path.read_bytes(), path.stat().st_mtime_ns
        save = f"with open({name!r}, 'wb') as file: torch.save(model, file)\n"
        assert len(run(save * 3 + SAVED)) == 3
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, changed_ns)

    @pytest.mark.parametrize(
        "code",
        [
            "with open('model.pt', 'wb') as file: file.write(b'new'); torch.save(model, file)",
            "with open('model.pt', 'wb') as file: file.write(b'new')",
            (
                "os.remove('model.pt'); file = open('model.pt', 'wb', 0)\n"
                "torch.save(model, file); file.write(b'new')"
            ),
        ],
        ids=["with something else", "something else", "another one"],
    )
    def test_what_the_script_writes_itself_is_written(self, run, tmp_path, code):
        torch.save({"of": "a real training"}, tmp_path / "model.pt")
        run(code + SAVED)
        assert (tmp_path / "model.pt").read_bytes() == b"new"

    @pytest.mark.parametrize(
        "code",
        [
            # torch pickles a tensor through torch.save.
            "import pickle\nthere = pickle.loads(pickle.dumps(data.tensors[0]))",
            "import io\nfile = io.BytesIO()\nfile.name = 'model.pt'",
            "import tempfile\nfile = tempfile.TemporaryFile()",
        ],
        ids=["pickle", "buffer", "file without a name"],
    )
    def test_what_leaves_no_file_is_saved(self, run, code):
        if "file =" in code:
            code += "\ntorch.save(data.tensors[0], file); file.seek(0); there = torch.load(file)"
        assert run(code + READ_BACK) == [True, 0]


BY_PATH = "torch.save(model, 'new.tmp')"
BY_FILE = "with open('new.tmp', 'wb') as f: torch.save(model, f)"
MOVES = (
    "os.replace('new.tmp', 'last.pt')",
    "os.rename('new.tmp', 'last.pt')",
    "from pathlib import Path; Path('new.tmp').replace('last.pt')",
    "import shutil; shutil.move('new.tmp', 'last.pt')",
    "import shutil; shutil.copyfile('new.tmp', 'last.pt')",
    "import shutil; shutil.copy2('new.tmp', 'last.pt')",
)


class TestAfterSave:
    """What scripts do with a checkpoint that was not written."""

    @pytest.mark.parametrize(
        ("save", "move"),
        [*((BY_PATH, one) for one in MOVES), (BY_FILE, MOVES[0]), (BY_FILE, MOVES[4])],
    )
    def test_a_real_one_is_not_replaced(self, run, tmp_path, save, move):
        (tmp_path / "last.pt").write_text("of a real training")
        assert run(f"{save}\n{move}{SAVED}") == ["new.tmp", "last.pt"]
        assert (tmp_path / "last.pt").read_text() == "of a real training"
        there = {one.name for one in tmp_path.iterdir()}
        assert there == {"last.pt"} | ({"new.tmp"} if "copy" in move and "open" in save else set())

    @pytest.mark.parametrize("take", ["os.remove('new.tmp')", "os.replace('new.tmp', 'last.pt')"])
    def test_an_older_one_below_the_temporary_name_stays(self, run, tmp_path, take):
        torch.save({"of": "a real training"}, tmp_path / "new.tmp")
        assert run(f"{BY_FILE}\n{take}{SAVED}")[0] == "new.tmp"
        assert [one.name for one in tmp_path.iterdir()] == ["new.tmp"]
        assert torch.load(tmp_path / "new.tmp") == {"of": "a real training"}

    def test_a_copy_into_a_folder(self, run, tmp_path):
        (tmp_path / "best").mkdir()
        code = "torch.save(model, 'a.pt')\nimport shutil\nshutil.copy('a.pt', 'best')"
        assert run(code + SAVED) == ["a.pt", "best/a.pt"]
        assert list((tmp_path / "best").iterdir()) == []

    def test_the_oldest_is_removed(self, run, tmp_path):
        """One of an earlier training, that was to be overwritten, stays."""
        (tmp_path / "1.pt").write_text("of a real training")
        code = "torch.save(model, '1.pt'); os.remove('1.pt')\nopen('x', 'w'); os.unlink('x')"
        assert run(code + SAVED) == ["1.pt"]
        assert [one.name for one in tmp_path.iterdir()] == ["1.pt"]

    @pytest.mark.parametrize("take", ["os.replace", "__import__('shutil').copyfile"])
    def test_a_file_that_is_put_there_is_one_again(self, run, tmp_path, take):
        code = "torch.save(model, 'a.pt')\nwith open('b', 'w') as f: f.write('b')\n"
        assert run(f"{code}{take}('b', 'a.pt'); os.remove('a.pt'){SAVED}") == ["a.pt"]
        assert not (tmp_path / "a.pt").exists()

    @pytest.mark.parametrize("path", ["'a.pt'", "os.path.abspath('a.pt')", "'b.pt'"])
    def test_it_is_read_back(self, run, tmp_path, path):
        code = (
            "torch.save(data.tensors[0], 'a.pt')\nimport shutil\nshutil.copy('a.pt', 'b.pt')\n"
            f"there = torch.load({path}, mmap=True)"
        )
        assert run(code + READ_BACK) == [True, 2]
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("save", [BY_PATH, BY_FILE])
    def test_its_size_is_told(self, run, save):
        code = (
            f"{save}\nnum_bytes = os.path.getsize('new.tmp'); os.remove('new.tmp')\n"
            "import io; file = io.BytesIO(); torch.save(model, file)\n"
            "print(json.dumps(num_bytes / len(file.getvalue())), flush=True)"
        )
        assert 0.9 < run(code) < 1.1

    def test_a_loop_that_saves_keeps_nothing(self, run, tmp_path):
        code = (
            "for batch in DataLoader(data, batch_size=8):\n"
            "    step(batch)\n"
            "    if steering.steering:\n"
            "        torch.save(model, 'a.pt')\n"
            "        try: torch.load('a.pt')\n"
            "        except FileNotFoundError: print('null', flush=True); os._exit(0)"
        )
        assert run(code) is None
        assert list(tmp_path.iterdir()) == []
