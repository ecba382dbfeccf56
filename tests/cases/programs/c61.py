"""`torch.compile`: hooks set after the first compiled call never fire; those of parameters do."""

import torch
import torch._dynamo
from support import report


def count(when: str) -> dict[str, int]:
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    compiled = torch.compile(model, backend="eager")
    forward, gradient = [0], [0]

    def called(*_: object) -> None:
        forward[0] += 1

    def reached(_parameter: torch.Tensor) -> None:
        gradient[0] += 1

    def add() -> None:
        model[0].register_forward_hook(called)
        model[0].weight.register_post_accumulate_grad_hook(reached)

    if when == "before":
        add()
    compiled(torch.ones(2, 4)).sum().backward()
    if when == "after":
        add()
    for _ in range(3):
        compiled(torch.ones(2, 4)).sum().backward()
    return {"forward_hook_calls": forward[0], "grad_hook_calls": gradient[0]}


before, after = count("before"), count("after")
report(
    after["forward_hook_calls"] == 0 and after["grad_hook_calls"] == 3,
    hook_before_compile=before,
    hook_after_first_call=after,
    type_seen=type(torch.compile(torch.nn.Linear(1, 1))).__name__,
)
