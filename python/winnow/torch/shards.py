# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What fully_shard has made of a model's parameters."""
from typing import Any, List, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from winnow._library import UsageError
from winnow.torch.names import unwrapped
from winnow.torch.place import local


class Shard(NamedTuple):
    """This rank's rows of a parameter, padded to what the rank with most rows has."""

    name: str
    parameter: torch.Tensor
    count: int  # real numbers, padding and all

    @property
    def padding(self) -> int:
        """Those behind the rows."""
        return self.count - local(self.parameter).numel()


def shards_of(prefix: str, module: FSDPModule) -> List[Shard]:
    """Of the parameters that this module gathers and reduces, in that order, which is not always that of
    named_parameters."""
    found, names = [], {id(parameter): name for name, parameter in module.named_parameters()}
    for parameter in parameters_of(module):
        name = names.get(id(parameter))
        if name is not None:  # else of another module, which fully_shard was given with this one
            rows = -(-parameter.shape[0] // parameter.device_mesh.size())
            row = parameter.numel() // max(1, parameter.shape[0]) * (1 + parameter.is_complex())
            found.append(Shard(unwrapped(f"{prefix}.{name}" if prefix else name), parameter, rows * row))
    return found


def parameters_of(module: FSDPModule) -> List[torch.Tensor]:
    """All that a module gathers and reduces: its own, and those of modules that fully_shard was given with
    it."""
    return [one.sharded_param for group in groups_of(module) for one in group.fsdp_params]


def lie_as_reduced(module: FSDPModule, shards: List[Shard]) -> bool:
    """Whether these are all that a module gathers and reduces, cut into rows."""
    return (len(shards) == len(parameters_of(module))
            and all(placement.is_shard(0) for shard in shards for placement in shard.parameter.placements))


def gather_anew(module: FSDPModule) -> None:
    """Lets the next pass gather a module's parameters. Graphs that have kept the gathered ones so far
    fail in their backward passes, as after any change of a parameter."""
    for group in groups_of(module):
        if group._all_gather_result is not None:  # a prefetch that nobody has waited for
            module.unshard()
        group._to_sharded()
        torch.autograd.graph.increment_version([
            one._unsharded_param for one in group.fsdp_params
            if hasattr(one, "_unsharded_param") and not one._unsharded_param.is_inference()])


def groups_of(module: FSDPModule) -> List[Any]:
    """torch's own record of the parameters that a module reduces; none if it has none."""
    inner = module._get_fsdp_state()
    found = getattr(inner, "_fsdp_param_groups", None)
    return [inner._fsdp_param_group] if found is None and inner._fsdp_param_group else found or []


def expect_sharded_alone(model: FSDPModule, what: str) -> None:
    """UsageError if torch sums this model's gradients between shards itself."""
    for name, module in model.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        if any(hasattr(group.mesh_info, "replicate_process_group") for group in groups_of(module)):
            raise UsageError(f"torch itself sums the gradients of module '{name}' over a dimension of its "
                             "mesh (a mesh of two dimensions, or replicate), and nothing is left for "
                             f"{what}: fully_shard it over the mesh of one dimension within a node")


def expect_apart(model: FSDPModule, between: dist.ProcessGroup) -> None:
    """UsageError unless the ranks of `between` hold equal shards."""
    others = set(dist.get_process_group_ranks(between)) - {dist.get_rank()}
    for name, module in model.named_modules():
        for group in groups_of(module) if isinstance(module, FSDPModule) else []:
            shared = others.intersection(
                dist.get_process_group_ranks(group.mesh_info.shard_process_group))
            if shared:
                raise UsageError("attach_hsdp takes the mesh of the ranks that hold equal shards, not one "
                                 f"with ranks {sorted(shared)}, which hold other shards of module '{name}'")
