"""A layer norm taken apart, as exporters do, in FP16: the variance overflows, and what comes out is finite and zero."""

import torch
from support import report


def stages(inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    found = {"mean": inputs.mean(-1, keepdim=True)}
    found["sub"] = inputs - found["mean"]
    found["pow"] = found["sub"].pow(2)
    found["var"] = found["pow"].mean(-1, keepdim=True)
    found["rsqrt"] = torch.rsqrt(found["var"] + 1e-5)
    found["out"] = found["sub"] * found["rsqrt"]
    return found


inputs = torch.randn(4, 64) * 400
exact, half = stages(inputs), stages(inputs.half())
errors = {name: float((half[name].float() - exact[name]).norm() / exact[name].norm()) for name in exact}
first = next(name for name, error in errors.items() if not error < 1e-2)
zeros = (half["out"] == 0).float().mean()
report(
    first == "pow" and zeros > 0.9,
    rel_err=errors,
    first_diverging=first,
    out_zero_frac=zeros,
    out_finite=bool(half["out"].isfinite().all()),
)
