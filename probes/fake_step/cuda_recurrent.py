"""Recurrent layers as cuDNN runs them: all layers and steps in one operation.

What it keeps for the backward pass (its reserve space) and takes while it runs (its workspace) are
cuDNN's own figures. For four layers of 320 cells, 250 steps of 100 samples and 123 inputs in
float32, pytorch/pytorch issue 2895 prints 736,000,000 and 17,730,560 bytes for an LSTM, and
864,000,000 and 13,169,920 for a GRU. To the byte these are, with L layers, D directions, T steps,
B samples and H cells:

    reserve   = (KEPT x L + L - 1) x D x T x B x H numbers
    workspace = all weights without biases, and TAKEN x L x D x B x H numbers

Later versions of cuDNN may choose other sizes. No figures were found for plain RNNs, nor for masks
of dropout between layers: theirs are assumed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


class CellKind(NamedTuple):
    """A kind of cell.

    Attributes:
        kept: numbers of each cell and step in the reserve space.
        taken: numbers of each cell and sample in the workspace.
        states: that it carries from step to step.
    """

    kept: int
    taken: int
    states: int = 1


LSTM, GRU = CellKind(5, 11, 2), CellKind(6, 8)
RNN = CellKind(2, 2)
"""Assumed: what goes into the only gate, and what comes out."""
KINDS = {"lstm": LSTM, "gru": GRU, "rnn_tanh": RNN, "rnn_relu": RNN}


class Sizes(NamedTuple):
    """Sizes of one call of a recurrent layer.

    Attributes:
        rows: T x B; of packed sequences, the steps of all of them.
        samples: B.
        cells: H.
    """

    kind: CellKind
    layers: int
    directions: int
    rows: int
    samples: int
    cells: int
    dropout: bool

    def reserved(self) -> int:
        """Numbers that are kept for the backward pass."""
        between = self.layers - 1
        each = self.rows * self.cells * self.directions
        masks = between * each // 4 if self.dropout else 0  # a byte for each, where numbers have 4
        return (self.kind.kept * self.layers + between) * each + masks

    def taken(self, num_weights: int) -> int:
        """Numbers that are taken while it runs."""
        states = self.layers * self.directions * self.samples * self.cells
        return num_weights + self.kind.taken * states


def use_cuda_recurrent() -> None:
    """From now on recurrent layers take the memory that they take in cuDNN."""
    functions: Any = torch._VF
    for name, kind in KINDS.items():
        setattr(functions, name, _recurrent(getattr(functions, name), kind))
    functions._pad_packed_sequence = _padded


def _recurrent(native: Any, kind: CellKind) -> Any:
    def run(*args: Any) -> Any:
        if not torch.backends.cudnn.enabled:
            return native(*args)
        packed = not isinstance(args[3], bool)  # or there would be the batch's sizes of each step
        if packed:
            given, steps, state, weights, _bias, layers, dropout, training, both = args
            batch_first = False
        else:
            given, state, weights, _bias, layers, dropout, training, both, batch_first = args
            steps = None
        states = list(state) if kind.states > 1 else [state]
        if torch.is_autocast_enabled(given.device.type):
            narrow = torch.get_autocast_dtype(given.device.type)
            given, *states = (each.to(narrow) for each in (given, *states))
            weights = _narrowed(weights, narrow)
        if batch_first:
            given = given.transpose(0, 1)
        samples = given.size(1) if steps is None else int(steps[0])
        sizes = Sizes(
            kind=kind,
            layers=layers,
            directions=1 + both,
            rows=given.size(0) * (samples if steps is None else 1),
            samples=samples,
            cells=weights[1].size(0) // _gates(kind),
            dropout=bool(dropout) and training,
        )
        call: Any = _Recurrent.apply
        out, *last = call(sizes, training, len(states), given, *states, *weights)
        return (out.transpose(0, 1) if batch_first else out, *last)

    return run


def _gates(kind: CellKind) -> int:
    return {LSTM: 4, GRU: 3}.get(kind, 1)


def _narrowed(weights: list[torch.Tensor], narrow: torch.dtype) -> list[torch.Tensor]:
    """Under autocast they are copied into one buffer (`_cudnn_rnn_cast_reflatten`)."""
    return [each.to(narrow) for each in weights]


def _padded(
    packed: torch.Tensor,
    samples_of_steps: torch.Tensor,
    batch_first: bool,
    _value: float,
    total_length: int,
) -> Any:
    """Torch's own reads the contents of what it makes."""
    samples = int(samples_of_steps[0])
    steps = max(samples_of_steps.size(0), total_length)
    with torch.utils._python_dispatch._disable_current_modes():
        lengths = (samples_of_steps[:, None] > torch.arange(samples)).sum(0)
    call: Any = _Padded.apply
    out = call(packed, steps, samples)
    return (out.transpose(0, 1) if batch_first else out), lengths


class _Padded(torch.autograd.Function):
    """Packed sequences in a tensor of all steps and samples."""

    @staticmethod
    def forward(ctx: Any, packed: torch.Tensor, steps: int, samples: int) -> torch.Tensor:
        ctx.shape = packed.shape
        return packed.new_zeros((steps, samples, *packed.shape[1:]))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradients[0].clone()  # one for each piece that was copied, and none stays
        return gradients[0].new_empty(ctx.shape), None, None


class _Recurrent(torch.autograd.Function):
    """Keeps its input, its output, the first states, the weights and the reserve space."""

    @staticmethod
    def forward(
        ctx: Any, sizes: Sizes, training: bool, num_states: int, given: torch.Tensor, *rest: Any
    ) -> Any:
        states, weights = rest[:num_states], rest[num_states:]
        given = given.contiguous()
        out_width = states[0].size(-1) * sizes.directions
        out = given.new_empty((*given.shape[:-1], out_width))
        last = [torch.empty_like(each) for each in states]
        reserve = given.new_empty(sizes.reserved() if training else 0)
        given.new_empty(sizes.taken(_num_weights(weights)))
        ctx.sizes, ctx.num_states = sizes, num_states
        ctx.save_for_backward(given, out, reserve, *states, *weights)
        return (out, *last)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        given, _, _, *rest = ctx.saved_tensors
        states, weights = rest[: ctx.num_states], rest[ctx.num_states :]
        gradients = tuple(each.contiguous() for each in gradients if each is not None)
        taken = ctx.sizes.taken(_num_weights(weights))
        of_given = torch.empty_like(given)
        of_states = [torch.empty_like(each) for each in states]
        given.new_empty(taken)
        all_weights = given.new_zeros(sum(each.numel() for each in weights))
        given.new_empty(taken)
        of_weights = all_weights.split([each.numel() for each in weights])
        shaped = (part.view(each.shape) for part, each in zip(of_weights, weights, strict=True))
        return None, None, None, of_given, *of_states, *shaped


def _num_weights(weights: Any) -> int:
    """Without biases, which are vectors."""
    return sum(each.numel() for each in weights if each.dim() > 1)
