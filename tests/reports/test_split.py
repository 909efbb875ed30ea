"""The split plan where people read it, and its snippet at work."""

import pytest
import torch
from batchadvisor.records import DeviceRun
from batchadvisor.reports.builder.devices.report import build_devices_report
from batchadvisor.reports.builder.devices.text import build_devices_text
from batchadvisor.reports.html.bars import split_bars
from batchadvisor.reports.html.page import render as html
from batchadvisor.reports.markdown.page import render as markdown
from batchadvisor.reports.terminal.document import render
from batchadvisor.reports.words.split_snippet import IN_THE_LOOP, snippet

from ..splits import answer_of, devices_of, plan_of, three
from .golden import agrees


@pytest.fixture(scope="module")
def answers():
    return three()


@pytest.fixture(scope="module")
def report(answers):
    return build_devices_report(devices_of(answers), answers, {}, plan_of(answers))


def terminal(answers, runs=None, width=100):
    record = devices_of(answers, runs)
    split = plan_of(answers, runs)
    page = build_devices_text(record, answers, split, folder="out")
    return render(page, width=width, color=False)


class TestTexts:
    @pytest.mark.parametrize("width", [100, 60])
    def test_terminal(self, answers, width):
        agrees(f"split-{width}.txt", terminal(answers, width=width))

    def test_markdown(self, report):
        text = markdown(report)
        start = text.index("#### Split plan")
        agrees("split.md", text[start : text.index("\n#### ", start + 1) + 1])

    def test_the_page_draws_it(self, report, answers):
        assert report.split.plan == plan_of(answers)
        page = html(report)
        assert "<h2>Split plan</h2>" in page
        assert "as planned: 94 ms a step (estimate)" in page
        assert "class SplitSampler(Sampler):" in page
        assert "fast: 164 samples, predicted 94 ms" in page

    def test_bars_are_as_long_as_the_steps(self, report):
        _, shapes = split_bars(report.split)
        drawn = [shape for shape in shapes if shape.attributes["class"] == "block full"]
        times = [bar.step_s for group in report.split.groups for bar in group.bars]
        assert len(drawn) == len(times) == 9
        scale = [
            float(shape.attributes["width"]) / time
            for shape, time in zip(drawn, times, strict=True)
        ]
        assert scale == pytest.approx([scale[0]] * 9, rel=0.01)
        ends = [float(shape.attributes["x"]) + float(shape.attributes["width"]) for shape in shapes
                if shape.tag == "rect"]  # fmt: skip
        assert max(ends) <= 900

    def test_names_cannot_leave_their_comment(self, answers):
        name = "x\nimport os  # </script>```"
        plan = plan_of({name: answers["fast"], "slow": answers["slow"]})
        lines = snippet(plan).splitlines()
        assert [line for line in lines if "import os" in line] == [
            "# rank 0: x import os  # </script>```"
        ]

    def test_why_there_is_none(self, answers):
        runs = [
            DeviceRun(device="fast", model="x", folder="fast"),
            DeviceRun(device="dead", model="y", error="Error: no power."),
        ]
        alone = {"fast": answers["fast"]}
        text = terminal(alone, runs)
        assert "Not available: a split needs two devices" in text
        assert "dead: no power." in text
        report = build_devices_report(devices_of(alone, runs), alone, {}, plan_of(alone, runs))
        assert report.split.plan is None
        assert "Not available" in markdown(report)
        assert "Not available" in html(report)

    def test_one_device_has_no_plan(self, answers):
        alone = {"fast": answers["fast"]}
        assert "Split plan" not in terminal(alone)
        report = build_devices_report(devices_of(alone), alone, {}, plan_of(alone))
        assert report.split is None
        assert "Split plan" not in markdown(report) + html(report)

    def test_what_the_end_of_an_epoch_loses(self):
        few = {name: answer_of(0.01, 0.001, recommend=32, num_samples=100) for name in "ab"}
        assert "An epoch has 1 step; its last 36 of 100 samples are left out" in terminal(few)


@pytest.fixture(scope="module")
def plan(answers):
    return plan_of({name: answers[name] for name in ("fast", "slow")}, global_batch=40)


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(130, 4, generator=generator, dtype=torch.float64)
    return torch.utils.data.TensorDataset(torch.arange(130), inputs, inputs.sin().sum(1))


@pytest.fixture(scope="module")
def ranks(plan, data):
    """What the snippet defines on each rank, and the lines for the loop."""
    setup, loop = snippet(plan).split(IN_THE_LOOP)
    spaces = []
    for rank in range(2):
        space = {"dataset": data, "rank": rank}
        exec(setup, space)
        spaces.append(space)
    return spaces, loop


class TestSnippet:
    """Two ranks in one process, each with the loader that the snippet makes."""

    def batches(self, ranks):
        return [list(space["loader"]) for space in ranks[0]]

    def test_sizes_are_as_planned(self, plan, ranks):
        sizes = [share.batch_size for share in plan.shares]
        assert sizes[0] > sizes[1] > 0
        for size, own in zip(sizes, self.batches(ranks), strict=True):
            assert [len(batch[0]) for batch in own] == [size] * 3

    def test_every_sample_is_used_once_but_for_the_short_step(self, ranks):
        """Disjoint; 120 of 130 in an epoch, and others are left out in the next."""
        left = []
        for epoch in range(2):
            for space in ranks[0]:
                space["sampler"].set_epoch(epoch)
            used = [
                int(index) for own in self.batches(ranks) for batch in own for index in batch[0]
            ]
            assert len(used) == len(set(used)) == 120
            left.append(set(range(130)) - set(used))
        assert left[0] != left[1]

    def test_all_are_used_where_the_steps_come_out_even(self, ranks):
        used = [
            index
            for space in ranks[0]
            for batch in space["SplitSampler"](120, space["rank"])
            for index in batch
        ]
        assert sorted(used) == list(range(120))

    def test_gradients_are_those_of_the_global_batch(self, ranks):
        """The mean over ranks, as DistributedDataParallel takes it, of weighted gradients."""
        spaces, loop = ranks
        net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        ).double()

        def gradient(batch, space=None):
            net.zero_grad()
            _, inputs, targets = batch
            loss = (net(inputs).squeeze(1) - targets).square().mean()
            if space is not None:
                space["loss"] = loss
                exec(loop, space)
                loss = space["loss"]
            loss.backward()
            return torch.cat([parameter.grad.flatten().clone() for parameter in net.parameters()])

        for first, other in zip(*self.batches(ranks), strict=True):
            whole = gradient([torch.cat(pair) for pair in zip(first, other, strict=True)])
            weighted = [gradient(*pair) for pair in zip((first, other), spaces, strict=True)]
            assert torch.allclose(sum(weighted) / 2, whole, rtol=1e-12, atol=1e-14)
            plain = [gradient(batch) for batch in (first, other)]
            assert not torch.allclose(sum(plain) / 2, whole, rtol=1e-3)
