"""A histogram of a tensor that holds NaN or Inf: numpy and torch both raise."""

import numpy as np
import torch
from support import report

TENSORS = {"nan": [1.0, float("nan")], "inf": [1.0, float("inf")], "all_nan": [float("nan")] * 3, "empty": []}


def outcome(action: object) -> str:
    try:
        action()  # type: ignore[operator]
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}"
    return "ok"


results = {}
for name, values in TENSORS.items():
    tensor = torch.tensor(values)
    results[name] = {
        "numpy": outcome(lambda tensor=tensor: np.histogram(tensor.numpy(), bins=8)),
        "torch_histc": outcome(lambda tensor=tensor: torch.histc(tensor, 8)),
        "torch_histogram": outcome(lambda tensor=tensor: torch.histogram(tensor, 8)),
        "right": {
            "total": tensor.numel(),
            "nan": int(tensor.isnan().sum()),
            "pinf": int((tensor == float("inf")).sum()),
            "ninf": int((tensor == -float("inf")).sum()),
            "binned": int(tensor.isfinite().sum()),
        },
    }
report("ValueError" in results["nan"]["numpy"] and "Error" in results["nan"]["torch_histc"], **results)
