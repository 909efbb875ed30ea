"""The Hugging Face Trainer on a small model of its own, with accumulation and a schedule."""

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, inputs, labels):
        outputs = self.net(inputs)
        return {"loss": nn.functional.mse_loss(outputs, labels), "outputs": outputs}


class Numbers(torch.utils.data.Dataset):
    def __init__(self, n):
        self.x = torch.randn(n, 16)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"inputs": self.x[i], "labels": self.x[i].sum()[None]}


def main():
    arguments = TrainingArguments(
        output_dir="hf-out",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_train_epochs=3,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(model=Regression(), args=arguments, train_dataset=Numbers(2000)).train()


if __name__ == "__main__":
    main()
