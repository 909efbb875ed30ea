"""In the style of icefall with Lhotse: batches bounded by seconds of speech, buckets of one length."""

import argparse

import numpy as np
import torch
from lhotse import CutSet, MonoCut, SupervisionSegment
from lhotse.dataset import DynamicBucketingSampler
from torch import nn
from torch.utils.data import DataLoader, Dataset

FRAME_S = 0.01


def make_cuts(count):
    rng = np.random.default_rng(0)
    cuts = []
    for number in range(count):
        duration = round(float(np.clip(rng.lognormal(1.0, 0.5), 0.8, 12.0)), 2)
        words = SupervisionSegment(
            id=f"s{number}", recording_id=f"r{number}", start=0, duration=duration, text="a b c"
        )
        cuts.append(
            MonoCut(id=f"c{number}", start=0, duration=duration, channel=0, supervisions=[words])
        )
    return CutSet.from_cuts(cuts)


class SpeechDataset(Dataset):
    """Takes a whole batch of cuts, as those of Lhotse do."""

    def __getitem__(self, cuts):
        frames = [max(int(cut.duration / FRAME_S / 4), 2) for cut in cuts]
        inputs = torch.zeros(len(frames), max(frames), 40)
        for row, length in zip(inputs, frames, strict=True):
            row[:length] = torch.randn(length, 40)
        return {
            "inputs": inputs,
            "supervisions": {
                "text": [cut.supervisions[0].text for cut in cuts],
                "num_frames": torch.tensor(frames),
            },
        }


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(40, 48, batch_first=True)
        self.out = nn.Linear(48, 30)

    def forward(self, inputs):
        return self.out(self.rnn(inputs)[0]).log_softmax(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-duration", type=float, default=60.0, help="seconds in a batch")
    parser.add_argument("--num-buckets", type=int, default=8)
    parser.add_argument("--num-epochs", type=int, default=30)
    args = parser.parse_args()
    train_sampler = DynamicBucketingSampler(
        make_cuts(1500),
        max_duration=args.max_duration,
        shuffle=True,
        num_buckets=args.num_buckets,
        drop_last=True,
    )
    train_dl = DataLoader(SpeechDataset(), sampler=train_sampler, batch_size=None, num_workers=0)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ctc = nn.CTCLoss(zero_infinity=True)
    for epoch in range(args.num_epochs):
        train_sampler.set_epoch(epoch)
        model.train()
        for batch in train_dl:
            lengths = batch["supervisions"]["num_frames"]
            targets = torch.randint(1, 30, (len(lengths), 3))
            output = model(batch["inputs"]).transpose(0, 1)
            loss = ctc(output, targets, lengths, torch.full((len(lengths),), 3))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
