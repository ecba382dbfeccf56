"""Autograd's anomaly mode makes a crash of an overflow that the scaler would have absorbed."""

import warnings

import torch
from support import autocast, grad_scaler, report


def train(*, anomaly: bool) -> tuple[int, str | None, float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    scaler = grad_scaler()
    error = None
    num_steps = 0
    with torch.autograd.set_detect_anomaly(anomaly, check_nan=True):
        try:
            for _ in range(20):
                optimizer.zero_grad()
                with autocast():
                    output = model(torch.ones(2, 4))
                output = torch.cat([output, -output], 1) * torch.tensor([1.0, 0.0] * 4)
                scaler.scale((output.float() * 1e3).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
                num_steps += 1
        except RuntimeError as raised:
            error = str(raised)[:90]
    return num_steps, error, scaler.get_scale()


warnings.simplefilter("ignore")
without, with_anomaly = train(anomaly=False), train(anomaly=True)
report(without[1] is None and with_anomaly[1], without_anomaly=without, with_anomaly=with_anomaly)
