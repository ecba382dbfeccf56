"""`update` within an accumulation window: gradients of different scales are added up."""

import torch
from support import grad_scaler, report


def accumulate(*, bad: bool) -> tuple[float, float]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    scaler = grad_scaler(init_scale=4.0, growth_interval=1)
    optimizer.zero_grad()
    other = torch.nn.Parameter(torch.ones(1))
    other_optimizer = torch.optim.SGD([other], 0.0)
    for _ in range(4):
        scaler.scale(model(torch.ones(1, 4)).sum() / 4).backward()
        if bad:  # the scale doubles at every micro-batch
            scaler.scale(other.sum()).backward()
            scaler.step(other_optimizer)
            scaler.update()
    scaler.unscale_(optimizer)
    return model.weight.grad[0, 0].item(), scaler.get_scale()


(right, _), (wrong, scale) = accumulate(bad=False), accumulate(bad=True)
report(
    abs(wrong - right) > 0.1,
    correct_grad=right,
    got_grad=wrong,
    error_factor=wrong / right,
    scale_window=[4.0, scale],
)
