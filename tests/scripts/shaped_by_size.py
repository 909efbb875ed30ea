import argparse, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
p = argparse.ArgumentParser(); p.add_argument("--batch-size", type=int, default=16); a = p.parse_args()
x = torch.randn(2400, 16)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=a.batch_size, shuffle=True, drop_last=True)
model = nn.RNN(16, 32, batch_first=True); head = nn.Linear(32, 1)
opt = torch.optim.Adam([*model.parameters(), *head.parameters()])
h = torch.zeros(1, a.batch_size, 32)
for epoch in range(50):
    for xb, yb in loader:
        out, h = model(xb[:, None], h.detach())
        loss = nn.functional.mse_loss(head(out[:, 0]), yb)
        opt.zero_grad(); loss.backward(); opt.step()
