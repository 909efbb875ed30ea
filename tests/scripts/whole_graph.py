"""A graph network that trains on all nodes in every step, without a DataLoader."""

import torch
from torch import nn

nodes, edges = torch.rand(300, 8), torch.randint(300, (2, 1200))
labels = torch.randint(3, (300,))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, nodes, edges):
        source, target = edges
        hidden = self.first(nodes).relu()
        return self.second(hidden.index_add(0, target, hidden[source]))


model = Network()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(200):
    loss = nn.functional.cross_entropy(model(nodes, edges), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
