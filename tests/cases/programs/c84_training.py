"""Scripted and traced modules, trained; and a trained model that is scripted and traced afterwards."""

import warnings

import torch
from support import digest, report

warnings.simplefilter("ignore")
results = {}
for kind in ("script", "trace", "plain"):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if kind != "plain":
        model = torch.jit.script(model) if kind == "script" else torch.jit.trace(model, torch.ones(1, 2))
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    results[kind] = digest(*model.parameters())
scripted = torch.jit.script(model)(torch.ones(1, 2)).tolist()
traced = torch.jit.trace(model, torch.ones(1, 2))(torch.ones(1, 2)).tolist()
report(len(set(results.values())) == 1 and scripted == traced, weights=results, scripted=scripted, traced=traced)
