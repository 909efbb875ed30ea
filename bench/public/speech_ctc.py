"""In the style of torchaudio's tutorials and DeepSpeech scripts: waveforms padded in the collate."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

hparams = {
    "n_rnn_layers": 1,
    "rnn_dim": 32,
    "n_class": 29,
    "n_feats": 32,
    "learning_rate": 5e-4,
    "batch_size": 10,
    "epochs": 30,
}


class Waveforms(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.lengths = torch.randint(800, 6400, (count,), generator=generator)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        waveform = torch.randn(1, int(self.lengths[index]))
        return waveform, 16000, "some words", index, 0, 0


def data_processing(data):
    spectrograms, labels, input_lengths, label_lengths = [], [], [], []
    for waveform, _, utterance, _, _, _ in data:
        windows = waveform[0].unfold(0, 64, 32)[:, : hparams["n_feats"]]
        spectrograms.append(windows)
        label = torch.tensor([ord(letter) % 28 + 1 for letter in utterance])
        labels.append(label)
        input_lengths.append(windows.shape[0] // 2)
        label_lengths.append(len(label))
    spectrograms = nn.utils.rnn.pad_sequence(spectrograms, batch_first=True)
    labels = nn.utils.rnn.pad_sequence(labels, batch_first=True)
    return spectrograms.unsqueeze(1).transpose(2, 3), labels, input_lengths, label_lengths


class SpeechRecognitionModel(nn.Module):
    def __init__(self, n_rnn_layers, rnn_dim, n_class, n_feats):
        super().__init__()
        self.cnn = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.rnn = nn.GRU(4 * n_feats // 2, rnn_dim, n_rnn_layers, batch_first=True)
        self.classifier = nn.Linear(rnn_dim, n_class)

    def forward(self, x):
        x = F.gelu(self.cnn(x)).flatten(1, 2).transpose(1, 2)
        return self.classifier(self.rnn(x)[0])


def train(model, device, train_loader, criterion, optimizer, scheduler, epoch):
    model.train()
    for batch_idx, _data in enumerate(train_loader):
        spectrograms, labels, input_lengths, label_lengths = _data
        spectrograms, labels = spectrograms.to(device), labels.to(device)
        optimizer.zero_grad()
        output = F.log_softmax(model(spectrograms), dim=2).transpose(0, 1)
        loss = criterion(output, labels, input_lengths, label_lengths)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if batch_idx % 100 == 0:
            print(epoch, batch_idx, loss.item())


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(
        dataset=Waveforms(2500),
        batch_size=hparams["batch_size"],
        shuffle=True,
        collate_fn=lambda x: data_processing(x),
    )
    model = SpeechRecognitionModel(
        hparams["n_rnn_layers"], hparams["rnn_dim"], hparams["n_class"], hparams["n_feats"]
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), hparams["learning_rate"])
    criterion = nn.CTCLoss(blank=0, zero_infinity=True).to(device)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=hparams["learning_rate"],
        steps_per_epoch=len(train_loader),
        epochs=hparams["epochs"],
    )
    for epoch in range(1, hparams["epochs"] + 1):
        train(model, device, train_loader, criterion, optimizer, scheduler, epoch)


if __name__ == "__main__":
    main()
