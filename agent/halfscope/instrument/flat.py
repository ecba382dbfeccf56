"""What this rank holds of each parameter that FullyShardedDataParallel keeps in a flat one.

Issues no collective and changes no parameter. Invariant: over the ranks of a group each element of the model is in one
piece, and what pads a flat parameter is in none.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from halfscope.instrument.names import canonical
from halfscope.instrument.ranks import is_joined
from halfscope.instrument.sharing import Share
from halfscope.probes.stored import num_elements

_WRAPPER = "torch.distributed.fsdp.fully_sharded_data_parallel"
DIMENSION = "shard"
"""What the ranks are called in `Layer.part` that hold the parts of a flat parameter."""


class FlatUnit:
    """One flat parameter: names and shares of those in it, and their pieces where the optimizer knows the flat one."""

    def __init__(self, prefix: str, module: Any, model: torch.nn.Module, path: str) -> None:
        handle = module._handle
        self.flat: torch.Tensor = handle.flat_param
        flat: Any = self.flat
        at = f"{path}." if path else ""
        self.names = [prefix + canonical(f"{at}_fsdp_wrapped_module.{name}", model) for name in flat._fqns]
        self.rank, self.num_ranks = _place(module)
        is_whole = handle._sharding_strategy.name == "NO_SHARD"
        part = "" if is_whole else f"{DIMENSION}:{self.rank}/{self.num_ranks}"
        if is_whole:
            tells = self.rank == 0
        else:
            between = getattr(module, "_inter_node_pg", None)  # groups that hold the same parts
            tells = between is None or torch.distributed.get_rank(between) == 0
        everywhere = is_whole and self.num_ranks == torch.distributed.get_world_size() > 1
        self.shares = [Share(tells, part, everywhere, tuple(shape)) for shape in flat._shapes]
        self.is_hidden = bool(handle._use_orig_params)
        """The optimizer has the parameters as the model had them: views of the flat one, of what is here of each."""
        found = getattr(flat, "_params", None)
        self.pieces: Sequence[torch.Tensor] = (
            found if self.is_hidden and found is not None else [_piece(self.flat) for _ in self.names]
        )

    def now(self) -> Sequence[torch.Tensor]:
        """The pieces, with values and gradients as they are now."""
        flat: Any = self.flat
        if self.is_hidden:
            return self.pieces
        values, grad = flat.data, flat.grad
        is_here = values.dim() == 1 and values.numel() == getattr(flat, "_sharded_size", values.size()).numel()
        if grad is not None and (grad.shape != values.shape or grad.dtype != values.dtype):
            grad = None
        for piece, info in zip(self.pieces, flat._shard_param_infos, strict=True):
            piece.grad = None
            if is_here and info.in_shard:
                piece.data = values.narrow(0, info.offset_in_shard, info.numel_in_shard)
                if grad is not None:
                    piece.grad = grad.narrow(0, info.offset_in_shard, info.numel_in_shard)
        return self.pieces


def _piece(flat: torch.Tensor) -> torch.Tensor:
    return flat.detach().new_empty(0).requires_grad_(flat.requires_grad)


def _place(module: Any) -> tuple[int, int]:
    group = module.process_group
    return torch.distributed.get_rank(group), torch.distributed.get_world_size(group)


class Whole(NamedTuple):
    """One parameter of a model, wherever its elements lie."""

    name: str
    num_elements: int
    requires_grad: bool


class FlatParameters:
    """All flat parameters of a run's models."""

    def __init__(self, models: Mapping[str, torch.nn.Module]) -> None:
        self.units = list(_units(models)) if is_joined() else []
        self._place = {name: at for at, name in enumerate(_module_names(models))} if self.units else {}
        self.by_id = {id(unit.flat): unit for unit in self.units if not unit.is_hidden}
        """Those that optimizers hold, by id."""

    def names(self) -> dict[int, str]:
        """Canonical names of the pieces, by id, in the order in which the models registered them."""
        found = [(name, id(p)) for unit in self.units for p, name in zip(unit.pieces, unit.names, strict=True)]
        return {key: name for name, key in sorted(found, key=lambda pair: self._place.get(_owner(pair[0]), 0))}

    def wholes(self, parameters: Iterable[torch.Tensor], names: Mapping[int, str]) -> list[Whole]:
        """Parameters of the models as they were before any was cut or joined, in the order of registration.

        Args:
            parameters: as the models have them now.
            names: id of each, and of each piece, to its canonical name.
        """
        shapes, found = self.shares(), []
        for parameter in parameters:
            unit = self.by_id.get(id(parameter))
            for piece in (parameter,) if unit is None else unit.pieces:
                share = shapes.get(id(piece))
                size = num_elements(piece) if share is None or share.shape is None else math.prod(share.shape)
                found.append(Whole(names[id(piece)], size, piece.requires_grad))
        order = {key: at for at, key in enumerate(names)}
        by_name = {names[key]: at for key, at in order.items()}
        return sorted(found, key=lambda whole: by_name[whole.name]) if self.by_id else found

    def shares(self) -> dict[int, Share]:
        """This rank's share of each parameter, by the id of its piece."""
        return {id(p): share for unit in self.units for p, share in zip(unit.pieces, unit.shares, strict=True)}

    def mesh(self) -> dict[str, list[int]]:
        """This rank's place among those that hold parts."""
        cut = next((unit for unit in self.units if any(share.part for share in unit.shares)), None)
        return {} if cut is None else {DIMENSION: [cut.rank, cut.num_ranks]}


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _module_names(models: Mapping[str, torch.nn.Module]) -> Iterator[str]:
    for model_name, model in models.items():
        for path, _ in model.named_modules():
            name = canonical(path, model) if path else ""
            yield ".".join(filter(None, [model_name if len(models) > 1 else "", name]))


def _units(models: Mapping[str, torch.nn.Module]) -> Iterator[FlatUnit]:
    loaded = sys.modules.get(_WRAPPER)
    if loaded is None:  # nobody can have made one
        return
    for model_name, model in models.items():
        prefix = f"{model_name}." if len(models) > 1 else ""
        for path, module in model.named_modules():
            if isinstance(module, loaded.FullyShardedDataParallel) and module._handle is not None:
                yield FlatUnit(prefix, module, model, path)
