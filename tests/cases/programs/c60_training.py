"""A training that copies its model for an EMA and saves model, optimizer and scaler at every step."""

import copy
import io

import torch
from support import autocast, digest, grad_scaler, report

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
scaler = grad_scaler(init_scale=256.0)
averaged = torch.optim.swa_utils.AveragedModel(model)
loaded = []
for _ in range(3):
    optimizer.zero_grad()
    with autocast():
        loss = model(torch.ones(2, 4)).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    averaged.update_parameters(model)
    twin = copy.deepcopy(model)
    twin(torch.ones(2, 4)).sum().backward()
    file = io.BytesIO()
    torch.save({"model": model, "optimizer": optimizer, "scaler": scaler}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=False)
    saved["scaler"].scale(saved["model"](torch.ones(2, 4)).sum()).backward()
    saved["scaler"].step(saved["optimizer"])
    saved["scaler"].update()
    loaded.append([digest(saved["model"]), saved["scaler"].get_scale(), type(saved["scaler"]).__name__])
report(True, weights=digest(model, optimizer), averaged=digest(averaged), loaded=loaded, scale=scaler.get_scale())
