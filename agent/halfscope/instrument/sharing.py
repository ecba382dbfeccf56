"""Which rank tells what: of gradients that several ranks hold alike one of them, of shards each its own.

Owns the reading of placements; sets no hooks. Invariant: no collective; over all ranks each element is told once, as
far as a wrapper says who holds what. What no wrapper says anything of, every rank tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from halfscope.instrument.ranks import dimension, is_joined


class Share(NamedTuple):
    """This rank's share of one parameter."""

    tells: bool = True
    part: str = ""
    """As `Layer.part`: place in the mesh dimensions that cut the tensor."""
    is_everywhere: bool = False
    """All ranks of the job hold the same."""
    shape: tuple[int, ...] | None = None
    """Of the whole, where the tensor here does not tell it."""


ALL = Share()


def replicated(models: Iterable[torch.nn.Module]) -> Mapping[int, Share]:
    """By id, parameters of DistributedDataParallel, which the lowest rank of the group tells."""
    found: dict[int, Share] = {}
    if is_joined():
        for model in models:
            for module in model.modules():
                if isinstance(module, DistributedDataParallel):
                    group = module.process_group
                    everywhere = torch.distributed.get_world_size(group) == torch.distributed.get_world_size() > 1
                    share = Share(torch.distributed.get_rank(group) == 0, is_everywhere=everywhere)
                    found.update((id(parameter), share) for parameter in module.parameters())
    return found


def is_addend(grad: torch.Tensor) -> bool:
    """Whether ranks hold parts of a gradient that are still to be added up: nobody can tell anything of their sum."""
    placements: Any = getattr(grad, "placements", ())
    return any(placement.is_partial() for placement in placements)


def of(parameter: torch.Tensor, known: Mapping[int, Share]) -> Share:
    """A parameter's share.

    Args:
        known: what `replicated` gave.
    """
    mesh: Any = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return known.get(id(parameter), ALL)
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return Share(tells=False)
    tells, cuts = True, []
    placements: Any = parameter.placements  # type: ignore[attr-defined]
    for at, placement in enumerate(placements):
        if placement.is_shard():
            cuts.append(f"{dimension(mesh, at)}:{coordinate[at]}/{mesh.size(at)}")
        else:
            tells &= coordinate[at] == 0
    return Share(tells, " ".join(cuts))
