"""The square root of a sum of squares at zero: finite forward, NaN backward, in FP32 too."""

from collections.abc import Callable

import torch
from support import report

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sqrt_sumsq": lambda values: values.pow(2).sum().sqrt(),
    "std": lambda values: values.std(),
    "norm": lambda values: values.norm(),
    "pow_half": lambda values: values.pow(2).sum() ** 0.5,
}
results = {}
for name, function in FUNCTIONS.items():
    values = torch.zeros(4, requires_grad=True)
    result = function(values)
    result.backward()
    results[name] = {"forward": result.item(), "grad": values.grad.tolist()}
report(all(value != value for value in results["sqrt_sumsq"]["grad"]), **results)
