"""Communication hooks for DistributedDataParallel, ready-made and measured.

    model.register_comm_hook(None, halfscope.comm_hooks.fp16_compress)

The state is the process group, or None for the whole job. Invariant: gradients are divided by the number of ranks
before they are rounded and added up, so that nothing overflows where the mean of all magnitudes does not.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from halfscope.instrument.ddp.reducing import Compression
from halfscope.instrument.ddp.wrapping import WatchedHook

__all__ = ["bf16_compress", "fp16_compress", "fp32_accumulate"]


def _sent_as(dtype: torch.dtype, group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    group = dist.group.WORLD if group is None else group
    buffer = bucket.buffer()
    sent = (buffer.to(torch.promote_types(buffer.dtype, torch.float32)) / group.size()).to(dtype)

    def back(future: Any) -> torch.Tensor:
        result: torch.Tensor = buffer.copy_(future.value()[0])
        return result

    future: torch.futures.Future[Any] = dist.all_reduce(sent, group=group, async_op=True).get_future()
    return future.then(back)


def _fp16_compress(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return _sent_as(torch.float16, state, bucket)


def _bf16_compress(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return _sent_as(torch.bfloat16, state, bucket)


def _fp32_accumulate(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return _sent_as(torch.promote_types(bucket.buffer().dtype, torch.float32), state, bucket)


fp16_compress = WatchedHook(
    _fp16_compress, Compression(dtype=torch.float16, divides_first=True), "halfscope.comm_hooks.fp16_compress"
)
"""Sends FP16: half the bytes of FP32. Finer than torch's hook, which rounds first and divides then."""
bf16_compress = WatchedHook(
    _bf16_compress, Compression(dtype=torch.bfloat16, divides_first=True), "halfscope.comm_hooks.bf16_compress"
)
"""Sends BF16: half the bytes of FP32, and no overflow of its own. Eight significant bits."""
fp32_accumulate = WatchedHook(_fp32_accumulate, None, "halfscope.comm_hooks.fp32_accumulate")
"""Sends gradients in half precision as FP32: twice the bytes, and the sum over ranks is rounded once."""
