"""Who listens to the steps of optimizers comes and goes while torch walks its own hooks."""

import contextlib

import pytest
import torch
from batchadvisor.probes.windows.optimizer_hooks import listen, watch_graphs
from batchadvisor.probes.windows.step_flops import StepFlopCounter
from torch.optim import optimizer as of_torch


def step(model=None):
    model = model or torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()


def nothing(*_):
    return None


@pytest.fixture
def boundary():
    """What a door does at the end of a step: whatever is put into it."""
    tasks = []
    listener = listen(nothing, lambda *_: tasks.pop(0)() if tasks else None)
    yield tasks
    listener.remove()


def test_a_counter_starts_and_ends_inside_the_step_that_ends_a_trial(boundary):
    counter, counted = StepFlopCounter(), []
    boundary += [counter.start, lambda: counted.append(counter.finish()), nothing]
    for _ in range(3):
        step()
    assert counted[0].forward == 2 * 3 * 4 * 2


def test_who_comes_in_a_step_hears_the_next_one(boundary):
    heard, late = [], []

    def come_in():
        late.append(listen(lambda *_: heard.append("before"), lambda *_: heard.append("after")))

    boundary.append(come_in)
    step()
    assert heard == []
    step()
    assert heard == ["before", "after"]
    late[0].remove()
    step()
    assert heard == ["before", "after"]


def test_other_arguments_reach_the_step_and_the_next_listener():
    seen = []
    first = listen(lambda _optimizer, args, kwargs: (args, {**kwargs, "closure": None}), nothing)
    second = listen(lambda _optimizer, _args, kwargs: seen.append(kwargs), nothing)
    step()
    first.remove()
    second.remove()
    assert seen == [{"closure": None}]


def test_nothing_stays_in_torch():
    hooks = of_torch._global_optimizer_pre_hooks, of_torch._global_optimizer_post_hooks
    before = [dict(each) for each in hooks]
    listen(nothing, nothing).remove()
    assert [dict(each) for each in hooks] == before


class TestCudaGraphs:
    """A graph on paper: what its capture holds is made by each replay."""

    @pytest.fixture
    def graph(self, monkeypatch):
        captures = []

        class Graph:
            breaks = False

            def capture_begin(self):
                captures.append(self)

            def capture_end(self):
                captures.pop()
                if self.breaks:
                    raise RuntimeError("the capture failed")

            def replay(self):
                heard.append("replayed")

        heard = []
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(captures))
        watch_graphs()
        listener = listen(lambda *_: heard.append("begins"), lambda *_: heard.append("made"))
        yield Graph(), heard
        listener.remove()

    def test_a_step_in_a_graph_is_made_when_it_is_replayed(self, graph):
        graph, heard = graph
        graph.capture_begin()
        step()
        graph.capture_end()
        assert heard == []
        graph.replay()
        graph.replay()
        assert heard == ["begins", "replayed", "made"] * 2
        step()
        assert heard[6:] == ["begins", "made"]

    @pytest.mark.parametrize("fails", [False, True])
    def test_a_graph_without_a_step_tells_of_none_after_one_with_a_step(self, graph, fails):
        graph, heard = graph
        graph.breaks = fails
        graph.capture_begin()
        step()
        failure = pytest.raises(RuntimeError, match="the capture failed")
        with failure if fails else contextlib.nullcontext():
            graph.capture_end()
        other = type(graph)()
        other.capture_begin()
        other.capture_end()
        other.replay()
        assert heard == ["replayed"]
