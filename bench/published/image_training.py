"""Trains a model of timm on random pictures, as timm's benchmark.py of July 2022 did.

    python bench/published/image_training.py resnet50 contiguous

That is: cuDNN tries all kernels, gradients are kept and set to zero, autocast to fp16 around
forward and backward pass without a scaler, SGD with Nesterov momentum, attention written out. Its
torch 1.12 was built for CUDA 11.3, which loads all kernels at its start.
"""

import os
import sys

os.environ["CUDA_MODULE_LOADING"] = "EAGER"
os.environ["TIMM_FUSED_ATTN"] = "0"

import torch
from torch import nn

if "torchvision" not in sys.modules:
    import without_torchvision

    without_torchvision.install()

import timm

torch.backends.cudnn.benchmark = True
name, layout = sys.argv[1:3]
memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
device = "cuda" if torch.cuda.is_available() else "cpu"
model = timm.create_model(name).to(device, memory_format=memory_format).train()
if len(sys.argv) > 3:
    picture = (3, int(sys.argv[3]), int(sys.argv[3]))
else:
    picture = model.default_cfg["input_size"]
loss_of = nn.CrossEntropyLoss()
no_decay = [p for p in model.parameters() if p.dim() < 2]
decay = [p for p in model.parameters() if p.dim() >= 2]
groups = [{"params": no_decay}, {"params": decay}]
optimizer = torch.optim.SGD(groups, lr=1e-4, momentum=0.9, nesterov=True, foreach=False)


class Pictures(torch.utils.data.Dataset):
    """More than any batch takes."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, number):
        return torch.zeros(picture)


def batch_of(pictures):
    return torch.stack(pictures).contiguous(memory_format=memory_format)


loader = torch.utils.data.DataLoader(Pictures(), batch_size=64, collate_fn=batch_of, drop_last=True)
for pictures in loader:
    optimizer.zero_grad(set_to_none=False)
    with torch.autocast("cuda", torch.float16):
        output = model(pictures.to(device))
        output = output[0] if isinstance(output, tuple) else output
        target = torch.empty(len(output), dtype=torch.long, device=device).random_(
            model.num_classes
        )
        loss_of(output, target).backward()
    optimizer.step()
