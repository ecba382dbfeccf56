"""An "FP32" baseline whose matrix products may be of reduced precision: a switch that no tensor's type tells."""

import torch
from support import report

left, right = torch.randn(512, 512), torch.randn(512, 512)
exact = left.double() @ right.double()


def multiplied() -> dict[str, object]:
    product = left @ right
    error = float((product.double() - exact).norm() / exact.norm())
    return {
        "dtype": str(product.dtype),
        "flag": torch.get_float32_matmul_precision(),
        # How much it matters depends on the device: TF32 or AMX give some 3e-4 here, others nothing.
        "near": error < 1e-2,
    }


results = {"default": multiplied()}
torch.set_float32_matmul_precision("medium")
results["medium"] = multiplied()
report(results["medium"]["flag"] == "medium", results=results)
