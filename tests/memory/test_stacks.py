"""What a stack proves, and which line is the user's."""

import pytest
from batchadvisor.probes.memory.stacks import NO_STACK, stack_of

SITE = "/env/lib/python3.11/site-packages/"
MINE = ("/home/me/job/train.py", 41, "main")


class TestCategory:
    @pytest.mark.parametrize(
        ("inner", "category"),
        [
            ((SITE + "torch/optim/adam.py", 9, "_init_group"), "optimizer"),
            ((SITE + "torch/nn/modules/linear.py", 9, "forward"), "forward"),
            ((SITE + "torch/nn/functional.py", 9, "relu"), "forward"),
            ((SITE + "torch/nn/modules/module.py", 9, "_apply"), "parameters"),
            ((SITE + "torch/nn/modules/linear.py", 9, "__init__"), "parameters"),
            ((SITE + "torch/autograd/graph.py", 9, "_engine_run_backward"), "backward"),
            (("??", 0, "torch::autograd::Engine::thread_main(int)"), "backward"),
            ((SITE + "torch/distributed/fsdp/x.py", 9, "unshard"), "communication"),
            ((SITE + "torch/_tensor.py", 9, "clone"), "unknown"),
            (("/home/me/optim/adam.py", 9, "step"), "unknown"),
        ],
    )
    def test_by_frame(self, inner, category):
        assert stack_of([inner, MINE]).category == category

    def test_the_innermost_proof_counts(self):
        forward = (SITE + "torch/nn/modules/linear.py", 9, "forward")
        step = (SITE + "torch/optim/lbfgs.py", 9, "step")
        assert stack_of([forward, MINE, step]).category == "forward"

    def test_a_word_of_the_profiler_counts_first(self):
        assert stack_of([MINE], "gradient").category == "backward"
        assert stack_of([], "parameter").category == "parameters"


class TestLine:
    def test_libraries_are_passed_over(self):
        library = (SITE + "transformers/modeling.py", 7, "forward")
        torch = (SITE + "torch/nn/functional.py", 9, "linear")
        stack = stack_of([torch, library, MINE])
        assert (stack.line, stack.function, stack.library) == ("job/train.py:41", "main", False)

    def test_names_of_windows(self):
        torch = (r"C:\env\Lib\site-packages\torch\nn\modules\linear.py", 9, "forward")
        stack = stack_of([torch, (r"C:\job\train.py", 41, "main")])
        assert (stack.line, stack.category) == ("job/train.py:41", "forward")

    def test_a_library_alone_is_named_as_one(self):
        stack = stack_of([(SITE + "transformers/modeling.py", 7, "forward")])
        assert (stack.line, stack.library) == ("transformers/modeling.py:7", True)

    @pytest.mark.parametrize(
        "frame",
        [
            ("??", 0, "at::empty"),
            (SITE + "torch/nn/functional.py", 9, "linear"),
            ("/b/aten/Empty.cpp", 3, "at::detail::empty_generic"),
        ],
    )
    def test_no_line_of_the_users(self, frame):
        stack = stack_of([frame])
        assert (stack.line, stack.known) == ("", True)

    def test_nothing_recorded(self):
        assert stack_of([]) is NO_STACK
