"""Models for the estimate of memory."""

from torch import nn


def stack(width: int = 64, layers: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(8, width), *(nn.Linear(width, width) for _ in range(layers)))


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(10, 10, bias=False)
        self.body = nn.Linear(10, 20, bias=False).requires_grad_(False)
        self.register_buffer("scale", self.head.weight.detach().clone())


class Attention(nn.Module):
    def forward(self, x):
        query, key, value = x * 2, x * 3, x * 4
        return nn.functional.scaled_dot_product_attention(query, key, value=value, is_causal=True)


def number() -> int:
    return 3


COUNT = 3
