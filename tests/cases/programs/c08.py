"""A fused optimizer skips inside its kernel: `optimizer.step` is called on a step that never happens."""

import torch
from support import autocast, grad_scaler, report

results = {}
for fused in (False, True):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=fused)
    scaler = grad_scaler()
    calls = []
    optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append(1))
    before = model.weight.detach().clone()
    with autocast():
        output = model(torch.ones(2, 4))
    scaler.scale((output.float() * 1e3).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    state = optimizer.state[model.weight]
    results["fused" if fused else "plain"] = {
        "step_called": len(calls),
        "changed": not torch.equal(before, model.weight),
        "scale": scaler.get_scale(),
        "state_step": float(state["step"]) if "step" in state else None,
        "grad_finite": bool(model.weight.grad.isfinite().all()),
    }
fused, plain = results["fused"], results["plain"]
report(fused["step_called"] == 1 and not fused["changed"] and plain["step_called"] == 0, **results)
