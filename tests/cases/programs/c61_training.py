"""Compiled trainings: the model before its optimizer, after it, and in place. Graphs and breaks are counted."""

import torch
import torch._dynamo
import torch._dynamo.utils
from support import autocast, digest, grad_scaler, report

results = {}
for way in ("before", "after", "in place"):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    called = model
    if way == "before":
        called = torch.compile(model, backend="eager")
    elif way == "in place":
        model.compile(backend="eager")
    optimizer = torch.optim.SGD(called.parameters(), 0.1)
    if way == "after":
        called = torch.compile(model, backend="eager")
    scaler = grad_scaler(init_scale=256.0)
    for _ in range(4):
        optimizer.zero_grad()
        with autocast():
            loss = called(torch.ones(2, 4)).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    counters = torch._dynamo.utils.counters
    results[way] = {
        "breaks": sum(counters["graph_break"].values()),
        "graphs": counters["stats"]["unique_graphs"],
        "weights": digest(model),
    }
report(True, **results)
