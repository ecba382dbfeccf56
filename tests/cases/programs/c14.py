"""Two optimizers under one scaler, one of which overflows: half a step, and the shared scale halves."""

import torch
from support import autocast, grad_scaler, report

G = torch.nn.Linear(4, 4)
D = torch.nn.Linear(4, 1)
optimizer_G = torch.optim.SGD(G.parameters(), 0.1)
optimizer_D = torch.optim.SGD(D.parameters(), 0.1)
scaler = grad_scaler(init_scale=1024.0)
before_G, before_D = G.weight.detach().clone(), D.weight.detach().clone()
with autocast():
    output_G, output_D = G(torch.ones(2, 4)), D(torch.ones(2, 4))
scaler.scale(output_G.float().mean()).backward()
scaler.scale(output_D.float().sum() * 1e3).backward()
scaler.step(optimizer_G)
scaler.step(optimizer_D)
found_inf = {
    name: float(sum(scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()))
    for name, optimizer in (("G", optimizer_G), ("D", optimizer_D))
}
scaler.update()
changed_G, changed_D = not torch.equal(before_G, G.weight), not torch.equal(before_D, D.weight)
report(
    changed_G and not changed_D,
    G_changed=changed_G,
    D_changed=changed_D,
    found_inf=found_inf,
    scale_before=1024.0,
    scale_after=scaler.get_scale(),
)
