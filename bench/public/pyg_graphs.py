"""In the style of PyTorch Geometric's mutag_gin.py: batches of graphs."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MLP, GINConv, global_add_pool

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=128)
parser.add_argument("--hidden_channels", type=int, default=32)
parser.add_argument("--num_layers", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=100)
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def graph(generator):
    nodes = int(torch.randint(8, 30, (1,), generator=generator))
    return Data(
        x=torch.randn(nodes, 7, generator=generator),
        edge_index=torch.randint(0, nodes, (2, 3 * nodes), generator=generator),
        y=torch.randint(0, 2, (1,), generator=generator),
    )


generator = torch.Generator().manual_seed(0)
dataset = [graph(generator) for _ in range(3000)]
train_loader = DataLoader(dataset[:2700], args.batch_size, shuffle=True)
test_loader = DataLoader(dataset[2700:], args.batch_size)


class GIN(nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels, num_layers):
        super().__init__()
        self.convs = nn.ModuleList()
        for _ in range(num_layers):
            self.convs.append(GINConv(MLP([in_channels, hidden_channels, hidden_channels])))
            in_channels = hidden_channels
        self.mlp = MLP([hidden_channels, hidden_channels, out_channels], norm=None, dropout=0.5)

    def forward(self, x, edge_index, batch, batch_size):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.mlp(global_add_pool(x, batch, size=batch_size))


model = GIN(7, args.hidden_channels, 2, args.num_layers).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)


def train():
    model.train()
    total_loss = 0
    for data in train_loader:
        data = data.to(device)
        optimizer.zero_grad()
        out = model(data.x, data.edge_index, data.batch, data.num_graphs)
        loss = F.cross_entropy(out, data.y)
        loss.backward()
        optimizer.step()
        total_loss += float(loss) * data.num_graphs
    return total_loss / len(train_loader.dataset)


@torch.no_grad()
def test(loader):
    model.eval()
    correct = 0
    for data in loader:
        data = data.to(device)
        out = model(data.x, data.edge_index, data.batch, data.num_graphs)
        correct += int((out.argmax(dim=-1) == data.y).sum())
    return correct / len(loader.dataset)


for epoch in range(1, args.epochs + 1):
    print(f"Epoch: {epoch:03d}, Loss: {train():.4f}, Test: {test(test_loader):.4f}")
