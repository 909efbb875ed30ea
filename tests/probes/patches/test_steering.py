"""Loops of many kinds under the hooks: what the listener hears, and which sizes arrive."""

import pytest

STEERED = [[5, "shape", True], [50, "shape", True], [3, "shape", True]]
FOUND = [STEERED, 100, 8, 1, 0, "cpu"]
"""What is said of a loop over 100 samples in batches of 8, on the CPU."""


LOOPS = {
    "named": "loader = DataLoader(data, batch_size=8)\nfor batch in loader: step(batch)",
    # Nothing holds the loader but its iterator.
    "in the loop's head": "for batch in DataLoader(data, batch_size=8): step(batch)",
    "iterator": "it = iter(DataLoader(data, 8))\nwhile True: step(next(it))",
    # As before a CUDA graph is captured.
    "warm-up": "it = DataLoader(data, 8)\nfor _ in range(11): step(data[:8])\nlist(map(step, it))",
    # Augmentations on the device are written so; a batch a step is what tells.
    "a generator without gradients": """
@torch.no_grad()
def augmented(loader):
    for x, y in loader: yield x + 1, y
for epoch in range(9):
    for batch in augmented(DataLoader(data, batch_size=8)): step(batch)
""",
    # The first would be waited for until all batches were taken for batches without a step.
    "another optimizer": """
for n, batch in enumerate(DataLoader(data, batch_size=8)):
    if n == 4: optimizer = torch.optim.Adam(model.parameters())
    step(batch)
""",
    "another model": """
for n, batch in enumerate(DataLoader(data, batch_size=8)):
    if n == 4:
        model = nn.Linear(20, 1)
        optimizer = torch.optim.Adam(model.parameters())
    step(batch)
""",
}

TAKEN = {
    "when they are needed": ("take = batches.__next__", [0]),
    "by a thread": (
        """
ready = queue.Queue(4)
def read():
    for batch in batches: ready.put(batch)
threading.Thread(target=read, daemon=True).start()
take = ready.get
""",
        range(3, 7),
    ),
    "while the one before is trained on": (
        """
held = [next(batches)]
def take():
    held.append(next(batches))
    return held.pop(0)
""",
        [1],
    ),
}
NOT_STEERED = {
    "no batches": ("while True: step(data[:8])", "without fetching a batch"),
    "validation alone": (
        """
for n in range(99):
    step(data[:8])
    if n % 50 == 0:
        with torch.no_grad(): list(DataLoader(data, batch_size=50))
""",
        "without fetching a batch",
    ),
    "fetched once": (
        """
import time
from batchadvisor.probes.doors import loader
loader.ON_FETCHED_S = 0.1
once = next(iter(DataLoader(data, batch_size=50)))
for _ in range(999): step(once), time.sleep(0.01)
""",
        "fetched 1 batch and then made",
    ),
    "the dataset batches itself": (
        "for _ in range(9):\n  for row in DataLoader(data, batch_size=None): step(row)",
        "the dataset batches itself",
    ),
}


class TestSteered:
    @pytest.mark.parametrize("loop", LOOPS)
    def test_loops(self, run, loop):
        assert run(LOOPS[loop]) == FOUND

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
        ("code", "rhythm"),
        [
            ("while True:\n for batch in [next(it) for _ in range(3)]: step(batch)", [1, 1, 3]),
            # Two optimizers of one class: torch hooks the step of each class that it met.
            ("optimizer = Careful(model.parameters())\nfor batch in it: step(batch)", [1, 1, 1]),
        ],
        ids=["pool", "calls the class above"],
    )
    def test_steps_are_counted(self, run, code, rhythm):
        code = (
            "class Careful(torch.optim.SGD):\n"
            "    def step(self, closure=None): return super().step(closure)\n"
            "listener.found = tell_rhythm\n"
            f"it = iter(DataLoader(data, batch_size=4))\n{code}"
        )
        assert run(code)[:3] == rhythm

    @pytest.mark.parametrize("taken", TAKEN)
    def test_batches_that_are_taken_ahead(self, run, taken):
        """Their number is known, so that no window counts them: they have the size before."""
        take, ahead = TAKEN[taken]
        code = (
            "import queue, threading, time\n"
            f"batches = iter(DataLoader(data, batch_size=8))\n{take}\n"
            "while not door.in_control:\n"
            "    batch = take()\n"
            "    time.sleep(0.05)\n"
            "    step(batch)\n"
            "listener.tell(listener.num_ahead)"
        )
        assert run(code) in ahead

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
        assert [batch for batch in run(code)[0] if batch[2]] == STEERED

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
        assert [batch for batch in seen if batch[2]] == STEERED
        assert [batch[0] for batch in seen if not batch[2]] == [10, 100, 6]

    @pytest.mark.parametrize(
        ("options", "keep"),
        [("num_workers=1, persistent_workers=True", "pass"), ("", "loaders.append(loader)")],
        ids=["its workers persist", "the one before is kept"],
    )
    def test_a_loader_made_anew_while_something_holds_the_one_before(self, run, options, keep):
        """Our own references hold none: without a collection the loader is gone with its epoch."""
        code = (
            "import gc\n"
            "gc.disable()\n"
            "loaders = []\n"
            "def epoch():\n"
            f"    loader = DataLoader(data, batch_size=8, {options})\n"
            f"    {keep}\n"
            "    for n, batch in enumerate(loader):\n"
            "        step(batch)\n"
            "        if n == 4: break\n"
            "while True: epoch()"
        )
        seen = run(f"exec(compile({code!r}, os.path.abspath('train.py'), 'exec'))")[0]
        sizes = dict.fromkeys(batch[0] for batch in seen if batch[2])  # a step may be made again
        assert list(sizes) == [batch[0] for batch in STEERED]

    def test_what_was_stepped_on_batches_of_no_size_of_ours_is_in_no_step(self, run):
        code = (
            "loaders, told = [], []\n"
            "listener.sizes = iter([5] * 99)\n"
            "listener.epoch_began = lambda: told.append(len(listener.seen))\n"
            "for epoch in range(3):\n"
            "    loaders.append(DataLoader(data, batch_size=8))\n"
            "    for n, batch in zip(range(9), loaders[-1]): step(batch)\n"
            "listener.tell([told, listener.seen])"
        )
        told, seen = run(f"exec(compile({code!r}, os.path.abspath('train.py'), 'exec'))")
        assert len(told) == 2  # in each of the epochs that follow
        assert all(batch == STEERED[0] for batch in seen)

    def test_a_pass_of_a_loader_made_in_the_same_line_is_no_training(self, run):
        """It forgets `torch.no_grad()`, and an optimizer steps five times on each batch."""
        code = (
            "critic = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)\n"
            "listener.sizes = iter([5] * 999)\n"
            "def made(size): return DataLoader(data, batch_size=size)\n"
            "told = []\n"
            "for epoch in range(3):\n"
            "    training, validation = made(8), made(20)\n"
            "    for n, batch in zip(range(9), training):\n"
            "        step(batch)\n"
            "        for _ in range(5): critic.step()\n"
            "    told += [len(batch[0]) for batch in validation]\n"
            "listener.tell(told)"
        )
        told = run(f"exec(compile({code!r}, os.path.abspath('train.py'), 'exec'))")
        assert told == [20] * 15

    def test_a_script_that_goes_on_to_another_loader(self, run):
        code = (
            "import time\n"
            "from batchadvisor.probes.doors import loader as door_of_loaders\n"
            "door_of_loaders.LEFT_S = 0.1\n"
            "listener.sizes = iter([5] * 99)\n"
            "one = DataLoader(data, batch_size=8)\n"
            "two = DataLoader(data, batch_size=4)\n"
            "for n, batch in zip(range(9), one): step(batch)\n"
            "time.sleep(0.1)\n"
            "while True:\n"
            "    for batch in two: step(batch)"
        )
        told = run(f"exec(compile({code!r}, os.path.abspath('train.py'), 'exec'))")
        assert told == ["train.py:6", 8]

    def test_a_loader_whose_class_does_not_call_torchs(self, run):
        """Its line is the one where it was made, and not where it is iterated over."""
        code = (
            "class Own(DataLoader):\n"
            "    def __init__(self, *arguments, **named):\n"
            "        self.__dict__.update(vars(DataLoader(*arguments, **named)))\n"
            "        self.__dict__['batch_sampler'] = self.batch_sampler.native\n"
            "listener.found = lambda loop: listener.tell(loop.discovery.primary.place.line)\n"
            "loader = Own(data, batch_size=8)\n"
            "for batch in loader: step(batch)"
        )
        assert run(f"exec(compile({code!r}, os.path.abspath('train.py'), 'exec'))") == 6

    def test_torchs_iterator_over_what_is_no_loader(self, run):
        """fastai makes one over an object of its own, which names no batch size."""
        code = (
            "from torch.utils.data import dataloader\n"
            "class Own:\n"
            "    _dataset_kind, _auto_collation, collate_fn = 1, False, staticmethod(tuple)\n"
            "    _index_sampler, num_workers, timeout, drop_last = [None] * 40, 0, 0, False\n"
            "    generator = _IterableDataset_len_called = None\n"
            "    pin_memory = persistent_workers = False\n"
            "    dataset = property(lambda self: self)\n"
            "    def __iter__(self): return iter([data[:8]] * 40)\n"
            "for batch in dataloader._SingleProcessDataLoaderIter(Own()): step(batch)"
        )
        assert "without fetching a batch" in run(code)[0]

    def test_a_batch_sampler_whose_size_is_no_number(self, run):
        code = (
            "class Both:\n"
            "    batch_size = [6, 2]\n"
            "    def __iter__(self): return (list(range(n, n + 8)) for n in range(0, 96, 8))\n"
            "    def __len__(self): return 12\n"
            "for batch in DataLoader(data, batch_sampler=Both()): step(batch)"
        )
        assert run(code) == FOUND

    def test_a_learning_rate_that_each_group_has_to_name(self, run):
        code = (
            "from torch.optim.optimizer import required\n"
            "class Old(torch.optim.SGD):\n"
            "    def __init__(self, params):\n"
            "        super().__init__(params, lr=0.1)\n"
            "        self.defaults['lr'] = required\n"
            "optimizer = Old([{'params': model.parameters(), 'lr': 0.1}])\n"
            "for batch in DataLoader(data, batch_size=8): step(batch)"
        )
        assert run(code) == FOUND

    def test_models_of_finished_phases_are_let_go(self, run):
        """Else their memory would be in the peaks of all phases after them."""
        code = (
            "import weakref\n"
            "listener.sizes = iter([5] * 99)\n"
            "weights = []\n"
            "for phase in range(3):\n"
            "    model = nn.Linear(20, 1)\n"
            "    weights.append(weakref.ref(model.weight))\n"
            "    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)\n"
            "    for _, batch in zip(range(3), DataLoader(data, batch_size=8)):\n"
            "        step(batch)\n"
            "        del batch\n"
            "    infos = door.watch.optimizer_infos()\n"
            "    info = infos[1]\n"
            "told = [weight() is not None for weight in weights]\n"
            "listener.tell([told, info.num_parameters, info.learning_rate, info.trains,\n"
            "    infos[3].trains])"
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
            "listener.sizes = iter([5] * 99)\n"
            f"for n in range(20): {loop}\n"
            "assert door.in_control\n"
            "listener.tell(listener.elsewhere > 9)"
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
        assert [batch[0] for batch in seen if batch[2]] == [5, 50, 3]
        # The other keeps its ratio of two to one; it is fetched first, so it follows a step later.
        assert [batch[0] for batch in seen if not batch[2]][:3] == [10, 10, 100]

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

    @pytest.mark.parametrize("loop", NOT_STEERED)
    def test_loops_that_cannot_be_steered(self, run, loop):
        code, part = NOT_STEERED[loop]
        reason, usage = run(code)
        assert part in reason
        assert not usage


LOOP_THAT_COUNTS = """
told = []
def boundary(num_steps=1):
    told.append(batches)
    door.ask(8)
    if len(told) == 14:
        listener.tell([told, num_epochs, getattr(listener, "num_epochs", 0)])
listener.boundary = boundary
loader = DataLoader(data, batch_size=8, **ARGUMENTS)
batches = num_epochs = 0
while True:
    num_epochs += 1
    accumulate, left = 4, len(loader) % 4
    for place, batch in enumerate(loader):
        batches = place
        if place >= len(loader) - left:
            accumulate = left
        nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
        if (place + 1) % accumulate == 0 or place + 1 == len(loader):
            optimizer.step()
"""
"""Counts its batches against `len(loader)`: 13, of which the last has a step of its own."""


class TestEpochs:
    def test_an_epoch_goes_on_for_a_loop_that_does_not_count(self, run):
        code = LOOP_THAT_COUNTS.replace("ARGUMENTS", "{}").replace("len(loader) % 4", "0")
        code = code.replace("if place >= len(loader) - left", "if False")
        told, num_epochs, ended = run(code)
        assert (num_epochs, ended) == (1, 0)  # though it makes a step at the end of each epoch
        assert max(told) > 13

    def test_a_pass_over_the_training_data_that_trains_nothing_ends(self, run):
        """It has as many samples as an epoch, whatever the size; the training's goes on."""
        code = (
            "listener.sizes = iter([50] * 99)\n"
            "loader, told = DataLoader(data, batch_size=8), []\n"
            "batches = iter(loader)\n"
            "for n in range(30):\n"
            "    step(next(batches))\n"
            "    if n % 10 == 9:\n"
            "        with torch.no_grad():\n"
            "            told.append(sum(1 for _ in loader))\n"
            "            next(batches)\n"
            "listener.tell(told)"
        )
        assert run(code) == [3, 3, 3]  # 13 batches of 8 are two of 50 and a rest

    def test_it_ends_where_the_loop_skips_what_is_beyond_it(self, run):
        """As BEiT and ConvNeXt do with batches beyond the steps of an epoch."""
        code = (
            "listener.sizes = iter([8] * 40)\n"
            "loader = DataLoader(data, batch_size=8)\n"
            "while True:\n"
            "    for place, batch in enumerate(loader):\n"
            "        if place >= len(loader): continue\n"
            "        step(batch)"
        )
        assert run(code)[1:] == FOUND[1:]

    @pytest.mark.parametrize("arguments", ["{}", "{'num_workers': 1, 'persistent_workers': True}"])
    @pytest.mark.parametrize("asked_to", [False, True])
    def test_it_ends_where_the_loop_steps_otherwise_beyond_it_or_is_asked_to(
        self, run, arguments, asked_to
    ):
        code = LOOP_THAT_COUNTS.replace("ARGUMENTS", arguments)
        code = code.replace("loader = ", f"door.watch._ends_epochs = {asked_to}\nloader = ")
        told, num_epochs, ended = run(code)
        assert ended == num_epochs - 1 > (2 if asked_to else 1)
        assert max(told if asked_to else told[-8:]) <= 13
