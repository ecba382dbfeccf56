"""The trainings the agent's cost is measured on: a tiny perceptron, a small GPT and a small convolutional network.

Must not import halfscope. Shape suffixes: B batch, T tokens, C channels, N heads, D channels of a head, V vocabulary.
Invariant: two workloads of one kind and seed do the same work, step for step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model, its optimizer and one training step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    update: Callable[[], torch.Tensor]
    """One step; returns the loss."""
    samples: int


def mlp() -> Workload:
    """Three linear layers of 64 x 64, batch 32, FP32: so little work that every microsecond shows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    inputs, targets = torch.randn(32, 64), torch.randn(32, 64)
    return _workload(model, lambda: functional.mse_loss(model(inputs), targets), samples=32)


def gpt() -> Workload:
    """Six layers of width 256, sequence 128, batch 4, BF16 autocast; 5.3 million parameters."""
    return _gpt(bf16=True)


def gpt_fp32() -> Workload:
    """The same in FP32: the harder case where the processor has no BF16 instructions and BF16 is the slow one."""
    return _gpt(bf16=False)


def _gpt(*, bf16: bool) -> Workload:
    torch.manual_seed(0)
    model = Gpt(num_layers=6, width=256, num_heads=8, num_tokens=128, vocabulary=2048)
    text_BT = torch.randint(0, 2048, (4, 129))

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            logits_BTV = model(text_BT[:, :-1])
            return functional.cross_entropy(logits_BTV.flatten(0, 1).float(), text_BT[:, 1:].flatten())

    return _workload(model, loss, samples=4)


def cnn() -> Workload:
    """Five convolutions with batch norm on 32 x 32 images, batch 32, FP32; 0.7 million parameters."""
    torch.manual_seed(0)
    widths = (3, 32, 64, 128, 256, 128)
    layers: list[nn.Module] = []
    for index in range(5):
        stride = 2 if index in (1, 2, 3) else 1
        layers += [nn.Conv2d(widths[index], widths[index + 1], 3, stride=stride, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(widths[index + 1]), nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    images, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    return _workload(model, lambda: functional.cross_entropy(model(images), labels), samples=32)


def _workload(model: nn.Module, loss: Callable[[], torch.Tensor], *, samples: int) -> Workload:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def update() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        optimizer.step()
        return value

    return Workload(model=model, optimizer=optimizer, update=update, samples=samples)


class Gpt(nn.Module):
    """A plain pre-norm decoder with tied embeddings."""

    def __init__(self, *, num_layers: int, width: int, num_heads: int, num_tokens: int, vocabulary: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(num_tokens, width)
        self.blocks = nn.ModuleList(GptBlock(width, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, text_BT: torch.Tensor) -> torch.Tensor:
        x_BTC = self.token(text_BT) + self.position(torch.arange(text_BT.shape[1], device=text_BT.device))
        for block in self.blocks:
            x_BTC = block(x_BTC)
        logits_BTV: torch.Tensor = self.head(self.norm(x_BTC))
        return logits_BTV


class GptBlock(nn.Module):
    """Attention and perceptron."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        num_sequences, num_tokens, width = x_BTC.shape
        q_BNTD, k_BNTD, v_BNTD = (
            part.view(num_sequences, num_tokens, self.num_heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x_BTC)).chunk(3, -1)
        )
        mixed_BNTD = functional.scaled_dot_product_attention(q_BNTD, k_BNTD, v_BNTD, is_causal=True)
        x_BTC = x_BTC + self.out(mixed_BNTD.transpose(1, 2).reshape(num_sequences, num_tokens, width))
        out_BTC: torch.Tensor = x_BTC + self.contract(functional.gelu(self.expand(self.norm2(x_BTC))))
        return out_BTC
