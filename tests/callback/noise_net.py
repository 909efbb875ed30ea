"""A small net with fixed weights whose gradient noise scale is known from per-sample gradients."""

from __future__ import annotations

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

NUM_SAMPLES = 4096


def problem():
    """The net, its data, and tr(Sigma)/|G|^2 from all per-sample gradients."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(NUM_SAMPLES, 12, generator=generator)
    y = x @ torch.randn(12, 1, generator=generator) + torch.randn(
        NUM_SAMPLES, 1, generator=generator
    )
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss(parameters, sample, target):
        return nn.functional.mse_loss(
            functional_call(net, parameters, (sample[None],)), target[None]
        )

    parameters = {name: parameter.detach() for name, parameter in net.named_parameters()}
    single = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    flat = torch.cat(
        [gradient.reshape(NUM_SAMPLES, -1) for gradient in single.values()], dim=1
    ).double()
    mean = flat.mean(0)
    truth = float(flat.var(0, correction=0).sum() / mean.square().sum())
    return net, x, y, truth
