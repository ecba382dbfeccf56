"""Eager FP16 overflows, the compiled graph does not: compilers leave out the rounding between fused operations.

The backend here does with the graph what inductor does, without its compiler: it computes in FP32 and rounds what comes
out.
"""

from collections.abc import Callable

import torch
from support import FP16, report


def fused(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., object]:
    for node in graph.graph.nodes:
        node.args = tuple(torch.float32 if each is FP16 else each for each in node.args)
    graph.recompile()
    return graph.forward


def squared(values: torch.Tensor) -> torch.Tensor:
    half = values.to(FP16)
    return (half * half).float()


values = torch.tensor([5000.0])
eager, compiled = squared(values), torch.compile(squared, backend=fused)(values)
report(bool(eager.isinf()) and bool(compiled.isfinite()), eager=eager, compiled=compiled)
