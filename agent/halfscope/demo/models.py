"""The two networks of the demo: a small convolutional one and a small transformer over the rows of an image.

Must not import the agent. Shape suffixes: B batch, H height, W width, T rows of the image as tokens, C channels,
N heads, D channels of a head.
Invariant: no batch statistics and no dropout, so a step that the scaler withholds leaves no trace in the model.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from halfscope.demo.data import SIDE

NUM_CLASSES = 10


class ConvNet(nn.Module):
    """Three convolutions and a linear head."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(2 * channels, 2 * channels, 3, stride=2, padding=1)
        self.head = nn.Linear(2 * channels * (SIDE // 4) ** 2, NUM_CLASSES)

    def forward(self, images_BHW: torch.Tensor) -> torch.Tensor:
        x_BCHW = functional.relu(self.conv1(images_BHW.unsqueeze(1)))
        x_BCHW = functional.relu(self.conv2(x_BCHW))
        x_BCHW = functional.relu(self.conv3(x_BCHW))
        logits: torch.Tensor = self.head(x_BCHW.flatten(1))
        return logits


class Attention(nn.Module):
    """Causal self-attention that adds a large negative constant to what a row may not look at."""

    def __init__(self, channels: int, num_heads: int, mask_constant: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.mask_constant = mask_constant
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x_BTC: torch.Tensor, hidden_BTT: torch.Tensor) -> torch.Tensor:
        num_images, num_rows, channels = x_BTC.shape
        q_BNTD, k_BNTD, v_BNTD = (
            part.view(num_images, num_rows, self.num_heads, -1).transpose(1, 2) for part in self.qkv(x_BTC).chunk(3, -1)
        )
        scores_BNTT = q_BNTD @ k_BNTD.transpose(-2, -1) * (channels // self.num_heads) ** -0.5
        # The usual line of many code bases. In FP16 a constant beyond 65,504 becomes -inf. That is harmless as long as
        # every row may look at something; one that may look at nothing has -inf everywhere, and softmax gives NaN.
        bias_BNTT = hidden_BTT.unsqueeze(1).to(scores_BNTT.dtype) * self.mask_constant
        weights_BNTT = (scores_BNTT + bias_BNTT).softmax(-1)
        mixed_BTC = (weights_BNTT.to(v_BNTD.dtype) @ v_BNTD).transpose(1, 2).reshape(num_images, num_rows, channels)
        attended: torch.Tensor = self.out(mixed_BTC)
        return attended


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm and a residual connection."""

    def __init__(self, channels: int, num_heads: int, mask_constant: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.attention = Attention(channels, num_heads, mask_constant)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = nn.Sequential(nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels))

    def forward(self, x_BTC: torch.Tensor, hidden_BTT: torch.Tensor) -> torch.Tensor:
        x_BTC = x_BTC + self.attention(self.norm1(x_BTC), hidden_BTT)
        out_BTC: torch.Tensor = x_BTC + self.mlp(self.norm2(x_BTC))
        return out_BTC


class RowTransformer(nn.Module):
    """Reads an image row by row from the top; blank rows count as padding and are looked at by nobody."""

    def __init__(self, mask_constant: float, channels: int = 32, num_heads: int = 2, num_blocks: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(SIDE, channels)
        self.position = nn.Parameter(0.02 * torch.randn(SIDE, channels))
        self.blocks = nn.ModuleList(Block(channels, num_heads, mask_constant) for _ in range(num_blocks))
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, NUM_CLASSES)

    def forward(self, images_BHW: torch.Tensor) -> torch.Tensor:
        blank_BT = (images_BHW == 0).all(-1)
        later_TT = torch.ones(SIDE, SIDE, dtype=torch.bool).triu(1)
        hidden_BTT = later_TT | blank_BT.unsqueeze(1)
        x_BTC = self.embed(images_BHW) + self.position
        for block in self.blocks:
            x_BTC = block(x_BTC, hidden_BTT)
        inked_BT1 = (~blank_BT).unsqueeze(-1).to(x_BTC.dtype)
        mean_BC = (self.norm(x_BTC) * inked_BT1).sum(1) / inked_BT1.sum(1)
        logits: torch.Tensor = self.head(mean_BC)
        return logits
