"""A monitor's own arithmetic in low precision: squares of FP16 values overflow, and so do FP32 squares of 3e19."""

import math

import torch
from support import FP16, report

gradient = torch.full((1000,), 300.0, dtype=FP16)
large = torch.full((10**4,), 3e19)
naive = (gradient * gradient).sum().sqrt().item()
report(
    math.isinf(naive),
    naive_fp16=naive,
    native_norm_fp16=gradient.norm().item(),
    right=gradient.float().norm().item(),
    fp32_norm_of_3e19=large.norm().item(),
    fp64=large.double().norm().item(),
    fp16_mean_sq_of_1e4=torch.full((4096,), 1e-4, dtype=FP16).pow(2).mean().item(),
)
