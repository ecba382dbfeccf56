"""Sparse and complex gradients meet a monitor that makes histograms."""

import math

import torch
from support import report


def outcome(action: object, length: int = 40) -> str:
    try:
        return str(action())[:length]  # type: ignore[operator]
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}"


embedding = torch.nn.Embedding(10, 4, sparse=True)
embedding(torch.tensor([1, 1, 3])).sum().backward()
gradient = embedding.weight.grad
results = {
    "sparse_histc": outcome(lambda: torch.histc(gradient, 4)),
    "sparse_isfinite": outcome(lambda: torch.isfinite(gradient)),
    "sparse_norm": outcome(lambda: gradient.norm().item()),
    "sparse_coalesced_values": outcome(lambda: gradient.coalesce().values().norm().item()),
}
parameter = torch.nn.Parameter(torch.ones(2, dtype=torch.cfloat))
(parameter * 2).abs().sum().backward()
results["complex_histc"] = outcome(lambda: torch.histc(parameter.grad, 4))
report(
    "Error" in results["sparse_histc"] and "Error" in results["complex_histc"],
    **results,
    right_sparse_norm=math.sqrt(4 * 4 + 4),
)
