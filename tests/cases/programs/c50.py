"""FP16 that is slower than FP32: layers so small that casting outweighs them, on a CPU without FP16 arithmetic."""

import time

import torch
from support import BF16, FP16, autocast, report

model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
batch = torch.randn(32, 64)


def step(dtype: torch.dtype | None) -> None:
    if dtype is None:
        outputs = model(batch)
    else:
        with autocast(dtype):
            outputs = model(batch)
    outputs.float().sum().backward()


def fastest_s(dtype: torch.dtype | None) -> float:
    times = []
    for _ in range(15):
        began = time.thread_time()
        step(dtype)
        times.append(time.thread_time() - began)
    return min(times)


fp32_s, fp16_s, bf16_s = (fastest_s(dtype) for dtype in (None, FP16, BF16))
report(fp16_s > fp32_s, is_fp16_slower=fp16_s > 1.5 * fp32_s)
