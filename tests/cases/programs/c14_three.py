"""Three optimizers of one model, of several kinds; the middle one alone overflows, in the second of three rounds."""

import torch
from support import autocast, digest, grad_scaler, report


class Parts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (torch.nn.Linear(4, 4) for _ in range(3))


model = Parts()
first = torch.optim.SGD(model.first.parameters(), 0.1)
second = torch.optim.AdamW(model.second.parameters(), 0.1, fused=True)
third = torch.optim.Adam(model.third.parameters(), 0.1)
scaler = grad_scaler(init_scale=1024.0)
scales = []
for factor in (1.0, 1e6, 1.0):
    for optimizer in (first, second, third):
        optimizer.zero_grad()
    with autocast():
        outputs = [part(torch.ones(2, 4)).float() for part in (model.first, model.second, model.third)]
    scaler.scale(outputs[0].mean() + (outputs[1] * factor).mean() + outputs[2].mean()).backward()
    for optimizer in (first, second, third):
        scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
report(scales == [1024.0, 512.0, 512.0], scales=scales, weights=digest(model, second, third))
