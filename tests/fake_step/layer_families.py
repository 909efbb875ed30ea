"""A small training of each family of torch's layers and optimizers: what people train.

Each is a model, a sample of its batch, and now and then a loss, an optimizer or a step of its own.
`bench/estimate_layers.py` runs each as a script.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

WIDTH, LENGTH, WORDS = 64, 32, 256
Sample = Callable[[], tuple[Any, ...]]


class Family(NamedTuple):
    """One training: a model that returns one tensor of the inputs in a batch of samples.

    Attributes:
        whole: items are whole batches: the loader has `batch_size=None`.
        step: makes a whole step of (model, optimizer, batch), in place of the usual one.
    """

    build: Callable[[], nn.Module]
    sample: Sample
    optimizer: Callable[[nn.Module], Any] = lambda model: torch.optim.SGD(
        model.parameters(), lr=1e-3, momentum=0.9
    )
    loss: Callable[[torch.Tensor], torch.Tensor] = lambda out: out.float().pow(2).mean()
    size: int = 32
    collate: Callable[[list[Any]], Any] | None = None
    whole: bool = False
    step: Callable[[Any, Any, Any], Any] | None = None


def usual_step(family: Family, model: Any, optimizer: Any, batch: Any) -> None:
    """Forward, backward, update."""
    if family.step is not None:
        family.step(model, optimizer, batch)
        return
    optimizer.zero_grad()
    loss = family.loss(model(*batch))
    loss.backward()
    loss.item()
    optimizer.step()


@contextlib.contextmanager
def unfused(*, on: bool) -> Iterator[None]:
    """Without mkldnn, while it is on."""
    was = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(was and not on)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was)


class Of(nn.Module):
    """Layers, and a function of them and of the inputs."""

    def __init__(self, forward: Callable[..., torch.Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self._forward = forward

    def forward(self, *inputs: Any) -> torch.Tensor:
        return self._forward(self.layers, *inputs)


def stack(*layers: nn.Module) -> Callable[[], nn.Module]:
    """Layers one after the other, made anew each time."""
    return lambda: copy.deepcopy(nn.Sequential(*layers))


def drawn(*shape: int) -> Sample:
    """Samples of normally distributed numbers."""
    return lambda: (torch.randn(*shape),)


vector, series, line = drawn(WIDTH), drawn(LENGTH, WIDTH), drawn(8, 256)
image, volume = drawn(8, 32, 32), drawn(8, 8, 16, 16)


def tokens() -> tuple[torch.Tensor, ...]:
    return (torch.randint(WORDS, (LENGTH,)),)


class Recurrent(nn.Module):
    """One of torch's recurrent layers and a head."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.cells = kind(WIDTH, WIDTH, batch_first=True, **options)
        self.head = nn.LazyLinear(16)
        self.head(self.cells(torch.zeros(2, 2, WIDTH))[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(x)[0])


class Packed(Recurrent):
    """The same of sequences of other lengths."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = torch.full((x.shape[0],), LENGTH // 2)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        out, _ = self.cells(packed)
        return self.head(nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0])


class Cells(nn.Module):
    """A recurrent cell in a loop of the user's."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cell = kind(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, outs = None, []
        for at in range(x.shape[1]):
            state = self.cell(x[:, at], state)
            outs.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(outs, 1)


class Attends(nn.Module):
    """Heads of one kind of attention."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        num, length, _ = x.shape
        parts = self.qkv(x).view(num, length, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        attend = functional.scaled_dot_product_attention
        if self.how == "causal":
            mixed = attend(query, key, value, is_causal=True)
        elif self.how == "mask":
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            mixed = attend(query, key, value, mask)
        elif self.how == "bias":
            mixed = attend(query, key, value, torch.zeros(length, length, device=x.device))
        elif self.how == "grouped":
            mixed = attend(query, key[:, :2], value[:, :2], enable_gqa=True)
        elif self.how == "dropout":
            mixed = attend(query, key, value, dropout_p=0.1)
        elif self.how == "math backend":
            with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
                mixed = attend(query, key, value)
        elif self.how == "flex":
            from torch.nn.attention.flex_attention import flex_attention

            mixed = flex_attention(query, key, value, score_mod=_biased)
        elif self.how == "flex, block mask":
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention

            mask = create_block_mask(_causal, None, None, length, length, device="cpu")
            mixed = flex_attention(query, key, value, block_mask=mask)
        elif self.how == "linear":
            query, key = query.softmax(-1), key.softmax(-2)
            mixed = query @ (key.transpose(-2, -1) @ value)
        else:
            scores = (query @ key.transpose(-2, -1)) * 0.25
            mixed = scores.softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(num, length, WIDTH))


def _biased(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score + (query - key)


def _causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return query >= key


def attends(how: str) -> Family:
    return Family(lambda: Attends(how), series)


class Deforms(nn.Module):
    """A deformable convolution out of torch's own operations."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = nn.Conv2d(8, 2 * 9, 3, padding=1)
        self.weight = nn.Conv2d(8 * 9, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        num, _, high, wide = x.shape
        shifts = self.offsets(x).view(num, 9, 2, high, wide).permute(0, 1, 3, 4, 2)
        rows = torch.linspace(-1, 1, high, device=x.device)
        columns = torch.linspace(-1, 1, wide, device=x.device)
        grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij")[::-1], -1)
        taken = [
            functional.grid_sample(x, grid + shifts[:, at].tanh() / high, align_corners=True)
            for at in range(9)
        ]
        return self.weight(torch.cat(taken, 1))


class Spectral(nn.Module):
    """Mixes frequencies by complex weights, as Fourier neural operators do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, 9, dtype=torch.cfloat) * 0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft2(x)
        mixed = torch.einsum("bihw,iow->bohw", spectrum[..., :9], self.weight)
        return torch.fft.irfft2(functional.pad(mixed, (0, 8)), s=x.shape[-2:])


class Spectrogram(nn.Module):
    """Short-time Fourier transforms, there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv1d(33, 33, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(64, device=x.device)
        spectrum = torch.stft(x, 64, 16, window=window, return_complex=True)
        mixed = spectrum * self.mix(spectrum.abs()).sigmoid()
        return torch.istft(mixed, 64, 16, window=window, length=x.shape[-1])


class ComplexLinear(nn.Module):
    """Complex weights and activations."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, dtype=torch.cfloat)
        self.second = nn.Linear(WIDTH, WIDTH, dtype=torch.cfloat)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(torch.complex(x, x))
        return self.second(x * torch.sigmoid(x.abs())).abs()


class Speech(nn.Module):
    """A loss over all alignments (CTC)."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 20))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        out = self.head(x).log_softmax(-1).transpose(0, 1)
        num = x.shape[0]
        lengths, targets = torch.full((num,), x.shape[1]), torch.full((num,), target.shape[1])
        return functional.ctc_loss(out, target, lengths, targets)


class QuantisedAware(nn.Module):
    """Fake quantisation of weights and activations, as quantisation-aware training has it."""

    def __init__(self) -> None:
        super().__init__()
        from torch.ao.quantization import get_default_qat_qconfig, prepare_qat

        body: Any = nn.Sequential(nn.Conv2d(8, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 8, 3, 1, 1))
        body.qconfig = get_default_qat_qconfig("fbgemm")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.body = prepare_qat(body.train())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class StraightThrough(nn.Module):
    """Weights rounded in the forward pass alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.weight.abs().amax() / 127
        rounded = (self.weight / scale).round() * scale
        return functional.linear(x, self.weight + (rounded - self.weight).detach())


class Symmetric(nn.Module):
    """A parametrisation of the user's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu() + x.triu(1).transpose(-1, -2)


def parametrised(change: Callable[[nn.Module], Any]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        layer = nn.Linear(WIDTH, WIDTH)
        change(layer)
        return nn.Sequential(layer, nn.ReLU(), nn.Linear(WIDTH, WIDTH))

    return build


class Checkpointed(nn.Module):
    """Blocks that compute their activations again."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, **self.options)
        return x


class Selective(Checkpointed):
    """Checkpointing that keeps what products of matrices return."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import create_selective_checkpoint_contexts as contexts

        x = self.first(x)
        kept = [torch.ops.aten.addmm.default, torch.ops.aten.mm.default]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, context_fn=lambda: contexts(kept))
        return x


class Double(torch.autograd.Function):
    """An operation of the user's."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grads[0]


class Experts(nn.Module):
    """Each token goes to one of four layers, by index: shapes depend on values."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(0, 1)
        chosen = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == at)
            out.index_add_(0, rows, expert(x[rows]))
        return out


class Capacity(Experts):
    """The same with a fixed number of tokens for each: shapes do not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(0, 1)
        scores = self.gate(x).softmax(-1)
        out = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            share, rows = scores[:, at].topk(x.shape[0] // 4)
            out = out.index_add(0, rows, share[:, None] * expert(x[rows]))
        return out


class Compiled(nn.Module):
    """A model that torch.compile would fuse."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, 16))
        self._fused = torch.compile(self.body, backend="aot_eager")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._fused(x)


class OwnUpdates(torch.optim.Optimizer):
    """Writes to `p.data`, as many do that were written by hand."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        del closure
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data -= 1e-3 * p.grad.data
                    p.data = p.data.clamp(-10, 10)


class Shampoo(torch.optim.Optimizer):
    """A preconditioner for each axis, with roots of matrices (Gupta et al. 2018)."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        del closure
        for p in (p for group in self.param_groups for p in group["params"]):
            if p.grad is None:
                continue
            grad, state = p.grad, self.state[p]
            for axis, length in enumerate(grad.shape):
                sums = state.setdefault(axis, torch.eye(length, dtype=p.dtype) * 1e-4)
                flat = grad.transpose(0, axis).reshape(length, -1)
                sums.addmm_(flat, flat.t())
                values, vectors = torch.linalg.eigh(sums)
                root = vectors @ torch.diag(values.clamp_min(1e-6) ** -0.25) @ vectors.t()
                grad = (root @ grad.transpose(0, axis).reshape(length, -1)).view(
                    grad.transpose(0, axis).shape
                )
                grad = grad.transpose(0, axis)
            p.sub_(grad, alpha=1e-3)


class EightBit(torch.optim.Optimizer):
    """Moments as bytes with a scale for each block of 256 numbers."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        del closure
        for p in (p for group in self.param_groups for p in group["params"]):
            if p.grad is None:
                continue
            state = self.state[p]
            if not state:
                state["m"] = torch.zeros_like(p, dtype=torch.int8)
                state["scale"] = p.new_zeros(-(-p.numel() // 256))
            scale = state["scale"].repeat_interleave(256)[: p.numel()].view_as(p)
            moment = state["m"].float() * scale * 0.9 + 0.1 * p.grad
            blocks = functional.pad(moment.flatten(), (0, -p.numel() % 256)).view(-1, 256)
            state["scale"].copy_(blocks.abs().amax(1) / 127)
            back = state["scale"].clamp_min(1e-12)[:, None]
            state["m"].copy_((blocks / back).round().flatten()[: p.numel()].view_as(p))
            p.add_(moment, alpha=-1e-3)


def with_closure(model: Any, optimizer: Any, batch: Any) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(*batch).pow(2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)


class Meter:
    """Sums a loss and prints it, as progress bars do."""

    def __init__(self) -> None:
        self.total, self.count, self.text = 0.0, 0, ""

    def add(self, loss: torch.Tensor, num: int) -> None:
        self.total += loss.detach() * num
        self.count += num
        self.text = f"loss {loss:.4f} mean {self.total / self.count:>8.3f} {loss.detach().numpy()}"


METER = Meter()


def metered(model: Any, optimizer: Any, batch: Any) -> None:
    optimizer.zero_grad()
    out = model(*batch)
    loss = out.pow(2).mean()
    loss.backward()
    optimizer.step()
    METER.add(loss, len(batch[0]))
    out.detach().cpu().numpy().argmax(-1).tolist()
    float(loss), f"{out.mean():e}", str(loss), "%.3f" % loss, round(loss.item(), 3)  # noqa: UP031


def scaled(model: Any, optimizer: Any, batch: Any) -> None:
    scaler = torch.amp.GradScaler("cpu")
    optimizer.zero_grad()
    scaler.scale(model(*batch).pow(2).mean()).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


def penalised(model: Any, optimizer: Any, batch: Any) -> None:
    """A gradient penalty: a backward pass through a backward pass."""
    optimizer.zero_grad()
    x = batch[0].requires_grad_()
    out = model(x).pow(2).mean()
    (grad,) = torch.autograd.grad(out, x, create_graph=True)
    (out + grad.pow(2).mean()).backward()
    optimizer.step()


def functional_gradients(model: Any, optimizer: Any, batch: Any) -> None:
    """Gradients of each sample by torch.func."""
    from torch.func import functional_call, grad, vmap

    given = dict(model.named_parameters())

    def loss(parameters: Any, x: torch.Tensor) -> torch.Tensor:
        return functional_call(model, parameters, (x[None],)).pow(2).mean()

    optimizer.zero_grad()
    each = vmap(grad(loss), in_dims=(None, 0))({k: v.detach() for k, v in given.items()}, batch[0])
    for name, parameter in given.items():
        parameter.grad = each[name].mean(0)
    optimizer.step()


class Graphs:
    """A batch that is an object of a library: one graph out of several, as PyG makes them."""

    def __init__(self, **parts: torch.Tensor) -> None:
        self.__dict__["parts"] = parts

    def __getattr__(self, name: str) -> torch.Tensor:
        try:
            return self.__dict__["parts"][name]
        except KeyError:
            raise AttributeError(name) from None

    def to(self, device: Any) -> Graphs:
        return Graphs(**{key: part.to(device) for key, part in self.parts.items()})


def graph() -> tuple[Any, ...]:
    return (torch.randn(10, WIDTH), torch.randint(10, (2, 30)))


def as_graphs(items: list[Any]) -> Any:
    x = torch.cat([x for x, _ in items])
    edges = torch.cat([edges + 10 * at for at, (_, edges) in enumerate(items)], 1)
    return Graphs(x=x, edge_index=edges, batch=torch.arange(len(items)).repeat_interleave(10))


class Convolves(nn.Module):
    """Messages along edges, and a mean over each graph."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, graphs: Any) -> torch.Tensor:
        h, (source, target) = self.lin(graphs.x), graphs.edge_index
        out = torch.zeros_like(h).index_add_(0, target, h[source])
        return self.head(out.relu())


def on_graphs(model: Any, optimizer: Any, batch: Any) -> None:
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()


PERCEPTRON = stack(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))


def by(optimizer: Callable[..., Any], **options: Any) -> Family:
    """The perceptron under an optimizer of torch's."""
    return Family(PERCEPTRON, vector, lambda model: optimizer(model.parameters(), **options))


def bags(*, sparse: bool, mode: str = "mean") -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.EmbeddingBag(WORDS, WIDTH, sparse=sparse, mode=mode), nn.Linear(WIDTH, WIDTH)
    )


def sparse_sgd(model: nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def sampled() -> nn.Module:
    def forward(layers: Any, x: torch.Tensor) -> torch.Tensor:
        theta = layers["theta"](x.flatten(1)).view(-1, 2, 3)
        grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
        return functional.grid_sample(layers["conv"](x), grid, align_corners=False)

    return Of(forward, theta=nn.Linear(8 * 32 * 32, 6), conv=nn.Conv2d(8, 8, 3, 1, 1))


def unpooled() -> nn.Module:
    def forward(layers: Any, x: torch.Tensor) -> torch.Tensor:
        out, places = functional.max_pool2d(layers["conv"](x), 2, return_indices=True)
        return functional.max_unpool2d(out, places, 2)

    return Of(forward, conv=nn.Conv2d(8, 8, 3, 1, 1))


def folded() -> nn.Module:
    def forward(layers: Any, x: torch.Tensor) -> torch.Tensor:
        parts = layers["lin"](functional.unfold(x, 4, stride=4).transpose(1, 2))
        return functional.fold(parts.transpose(1, 2), (32, 32), 4, stride=4)

    return Of(forward, lin=nn.Linear(128, 128))


def multihead(**options: Any) -> Callable[[], nn.Module]:
    def forward(layers: Any, x: torch.Tensor) -> torch.Tensor:
        return layers["mha"](x, x, x, **options)[0]

    return lambda: Of(forward, mha=nn.MultiheadAttention(WIDTH, 4, batch_first=True))


def adaptive() -> nn.Module:
    def forward(layers: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return layers["a"](layers["l"](x), y).loss

    return Of(
        forward, l=nn.Linear(WIDTH, WIDTH), a=nn.AdaptiveLogSoftmaxWithLoss(WIDTH, 100, [10, 50])
    )


def frozen_half() -> nn.Module:
    model = PERCEPTRON()
    model[0].requires_grad_(False)
    return model


def nested() -> nn.Module:
    def forward(layers: Any, x: torch.Tensor) -> torch.Tensor:
        parts = torch.nested.nested_tensor_from_jagged(
            x.flatten(0, 1), torch.arange(0, x.shape[0] * LENGTH + 1, LENGTH)
        )
        return layers["l"](parts).values()

    return Of(forward, l=nn.Linear(WIDTH, WIDTH))


def normed(layer: nn.Module) -> Callable[[], nn.Module]:
    return stack(nn.Conv2d(8, 16, 3, 1, 1), layer, nn.ReLU(), nn.Conv2d(16, 8, 3, 1, 1))


def upsampled(mode: str, **options: Any) -> Callable[[], nn.Module]:
    return stack(nn.Conv2d(8, 8, 3, 1, 1), nn.Upsample(scale_factor=2, mode=mode, **options))


FAMILIES: dict[str, dict[str, Family]] = {
    "recurrent": {
        "LSTM": Family(lambda: Recurrent(nn.LSTM, num_layers=2), series),
        "LSTM, both ways": Family(lambda: Recurrent(nn.LSTM, bidirectional=True), series),
        "LSTM, projected": Family(lambda: Recurrent(nn.LSTM, proj_size=16), series),
        "LSTM, dropout": Family(lambda: Recurrent(nn.LSTM, num_layers=2, dropout=0.1), series),
        "LSTM, packed": Family(lambda: Packed(nn.LSTM), series),
        "GRU": Family(lambda: Recurrent(nn.GRU, num_layers=2), series),
        "GRU, packed": Family(lambda: Packed(nn.GRU), series),
        "RNN": Family(lambda: Recurrent(nn.RNN), series),
        "LSTMCell in a loop": Family(lambda: Cells(nn.LSTMCell), series),
        "GRUCell in a loop": Family(lambda: Cells(nn.GRUCell), series),
    },
    "convolutions": {
        "Conv1d": Family(stack(nn.Conv1d(8, 16, 5), nn.ReLU(), nn.Conv1d(16, 8, 5)), line),
        "Conv2d": Family(stack(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3)), image),
        "Conv2d, depthwise": Family(
            stack(nn.Conv2d(8, 32, 3, groups=8), nn.ReLU(), nn.Conv2d(32, 8, 1)), image
        ),
        "Conv2d, channels last": Family(
            lambda: normed(nn.BatchNorm2d(16))().to(memory_format=torch.channels_last), image
        ),
        "Conv3d": Family(stack(nn.Conv3d(8, 16, 3), nn.ReLU(), nn.Conv3d(16, 8, 3)), volume),
        "ConvTranspose1d": Family(
            stack(nn.ConvTranspose1d(8, 16, 4, 2), nn.ReLU(), nn.Conv1d(16, 8, 3)), line
        ),
        "ConvTranspose2d": Family(
            stack(nn.ConvTranspose2d(8, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 8, 3)), image
        ),
        "ConvTranspose3d": Family(
            stack(nn.ConvTranspose3d(8, 8, 2, 2), nn.ReLU(), nn.Conv3d(8, 8, 3)), volume
        ),
        "deformable, of grid_sample": Family(Deforms, image),
        "Unfold and Fold": Family(folded, image),
    },
    "sampling and pooling": {
        "grid_sample and affine_grid": Family(sampled, image),
        "Upsample, nearest": Family(upsampled("nearest"), image),
        "Upsample, bilinear": Family(upsampled("bilinear", align_corners=False), image),
        "Upsample, bicubic": Family(upsampled("bicubic"), image),
        "Upsample, trilinear": Family(
            stack(nn.Conv3d(8, 8, 3, 1, 1), nn.Upsample(scale_factor=2, mode="trilinear")), volume
        ),
        "PixelShuffle": Family(stack(nn.Conv2d(8, 32, 3, 1, 1), nn.PixelShuffle(2)), image),
        "MaxPool and MaxUnpool": Family(unpooled, image),
        "AdaptiveAvgPool and FractionalMaxPool": Family(
            stack(nn.Conv2d(8, 8, 3), nn.FractionalMaxPool2d(2, 14), nn.AdaptiveAvgPool2d(7)), image
        ),
        "AvgPool, LPPool, padding": Family(
            stack(nn.ReflectionPad2d(2), nn.Conv2d(8, 8, 3), nn.AvgPool2d(2), nn.LPPool2d(2, 2)),
            image,
        ),
    },
    "embeddings": {
        "Embedding": Family(stack(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)), tokens),
        "Embedding, sparse gradients": Family(
            stack(nn.Embedding(WORDS, WIDTH, sparse=True), nn.Linear(WIDTH, WIDTH)),
            tokens, sparse_sgd,
        ),
        "EmbeddingBag": Family(bags(sparse=False), tokens),
        "EmbeddingBag, max": Family(bags(sparse=False, mode="max"), tokens),
        "EmbeddingBag, sparse gradients": Family(bags(sparse=True), tokens, sparse_sgd),
        "EmbeddingBag, SparseAdam": Family(
            stack(nn.EmbeddingBag(WORDS, WIDTH, sparse=True)), tokens,
            lambda model: torch.optim.SparseAdam(list(model.parameters()), lr=1e-3),
        ),
    },
    "attention": {
        **{f"scaled_dot_product_attention, {how}": attends(how) for how in (
            "causal", "mask", "bias", "grouped", "dropout", "math backend"
        )},
        "scores by hand": attends("scores"),
        "linear attention": attends("linear"),
        "flex_attention": attends("flex"),
        "flex_attention, block mask": attends("flex, block mask"),
        "MultiheadAttention, with weights": Family(multihead(), series),
        "MultiheadAttention, without weights": Family(multihead(need_weights=False), series),
        "TransformerEncoder": Family(
            lambda: nn.TransformerEncoder(
                nn.TransformerEncoderLayer(WIDTH, 4, 128, 0.0, batch_first=True), 2,
                enable_nested_tensor=False,
            ),
            series,
        ),
        "jagged nested tensors": Family(nested, series),
    },
    "transforms and complex numbers": {
        "rfft2 with complex weights": Family(Spectral, image),
        "stft and istft": Family(Spectrogram, lambda: (torch.randn(512),)),
        "complex Linear": Family(ComplexLinear, vector),
    },
    "norms": {
        "BatchNorm": Family(normed(nn.BatchNorm2d(16)), image),
        "GroupNorm": Family(normed(nn.GroupNorm(4, 16)), image),
        "InstanceNorm": Family(normed(nn.InstanceNorm2d(16, affine=True)), image),
        "LocalResponseNorm": Family(normed(nn.LocalResponseNorm(5)), image),
        "LayerNorm": Family(stack(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)), series),
        "RMSNorm": Family(stack(nn.Linear(WIDTH, WIDTH), nn.RMSNorm(WIDTH)), series),
    },
    "losses and others": {
        "CTC": Family(
            Speech, lambda: (torch.randn(LENGTH, WIDTH), torch.randint(1, 20, (8,))),
            loss=lambda out: out,
        ),
        "AdaptiveLogSoftmaxWithLoss": Family(
            adaptive, lambda: (torch.randn(WIDTH), torch.tensor(3)), loss=lambda out: out
        ),
        "Bilinear": Family(
            lambda: Of(lambda layers, x: layers["b"](x, x), b=nn.Bilinear(WIDTH, WIDTH, 16)), vector
        ),
        "experts, by index": Family(Experts, series),
        "experts, of fixed capacity": Family(Capacity, series),
        "Dropout": Family(stack(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1)), series),
        "autograd.Function": Family(
            lambda: Of(lambda layers, x: Double.apply(layers["l"](x)), l=nn.Linear(WIDTH, WIDTH)),
            vector,
        ),
        "frozen layers": Family(frozen_half, vector),
    },
    "quantised-aware": {
        "prepare_qat": Family(QuantisedAware, image),
        "straight-through rounding": Family(StraightThrough, series),
    },
    "parametrisations": {
        "weight_norm": Family(parametrised(parametrizations.weight_norm), vector),
        "spectral_norm": Family(parametrised(parametrizations.spectral_norm), vector),
        "orthogonal": Family(parametrised(parametrizations.orthogonal), vector),
        "of one's own": Family(
            parametrised(
                lambda layer: parametrize.register_parametrization(layer, "weight", Symmetric())
            ),
            vector,
        ),
    },
    "checkpointing and compiling": {
        "checkpoint, use_reentrant=False": Family(
            lambda: Checkpointed(use_reentrant=False), series
        ),
        "checkpoint, use_reentrant=True": Family(
            lambda: Checkpointed(use_reentrant=True), series
        ),
        "checkpoint, selective": Family(Selective, series),
        "torch.compile": Family(Compiled, series),
    },
    "steps": {
        "GradScaler": Family(PERCEPTRON, vector, step=scaled),
        "gradient penalty": Family(PERCEPTRON, vector, step=penalised),
        "torch.func, per sample": Family(PERCEPTRON, vector, step=functional_gradients),
        "a meter that formats the loss": Family(PERCEPTRON, vector, step=metered),
        "a batch that is an object": Family(
            Convolves, graph, collate=as_graphs, step=on_graphs
        ),
        "items that are whole batches": Family(PERCEPTRON, drawn(32, WIDTH), whole=True),
    },
    "optimizers": {
        "SGD": by(torch.optim.SGD, lr=1e-3, momentum=0.9, foreach=True),
        "Adam": by(torch.optim.Adam, foreach=True),
        "Adam, amsgrad": by(torch.optim.Adam, amsgrad=True, foreach=True),
        **{name: by(getattr(torch.optim, name), foreach=True) for name in (
            "AdamW", "Adadelta", "Adafactor", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam",
            "RMSprop", "Rprop",
        )},
        "LBFGS": Family(
            PERCEPTRON, vector,
            lambda model: torch.optim.LBFGS(
                model.parameters(), lr=0.1, max_iter=30, history_size=20
            ),
            step=with_closure,
        ),
        "Muon": Family(PERCEPTRON, vector, lambda model: torch.optim.Muon(
            [p for p in model.parameters() if p.dim() == 2], lr=1e-3
        )),
        "8-bit moments": Family(PERCEPTRON, vector, lambda model: EightBit(model.parameters())),
        "Shampoo": Family(PERCEPTRON, vector, lambda model: Shampoo(model.parameters())),
        "p.data -= update": Family(
            PERCEPTRON, vector, lambda model: OwnUpdates(model.parameters())
        ),
    },
}  # fmt: skip
ALL = {name: family for group in FAMILIES.values() for name, family in group.items()}
"""By their names, which are all different."""
