# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What fully_shard has made of a model's parameters."""
from typing import Any, List, NamedTuple, Optional

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
    others: Optional[dist.ProcessGroup]  # this and the ranks that have its other rows; None: it is whole

    @property
    def padding(self) -> int:
        """Those behind the rows."""
        return self.count - local(self.parameter).numel()


def shards_of(prefix: str, module: FSDPModule, model: Optional[torch.nn.Module] = None) -> List[Shard]:
    """Of the parameters that this module gathers and reduces, in that order, which is not always that of
    named_parameters. Those of modules that fully_shard was given with it are among them where `model`, which
    has all of these, is given; the prefix then is the model's."""
    found, names = [], {id(parameter): name for name, parameter in (model or module).named_parameters()}
    for group in groups_of(module):
        others = _others_of(group)
        for parameter in (one.sharded_param for one in group.fsdp_params):
            name = names.get(id(parameter))
            if name is None:
                continue
            row = parameter.numel() * (1 + parameter.is_complex())
            if parameter.dim() > 0:
                rows = -(-parameter.shape[0] // (1 if others is None else others.size()))
                row = row // max(1, parameter.shape[0]) * rows
            found.append(Shard(unwrapped(f"{prefix}.{name}" if prefix else name), parameter, row, others))
    return found


def _others_of(group: Any) -> Optional[dist.ProcessGroup]:
    return getattr(group.mesh_info, "shard_process_group", None)


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


def replicas_of(group: Any) -> Optional[dist.ProcessGroup]:
    """The ranks that hold the same shards of a group of parameters, if torch sums between them itself."""
    return getattr(group.mesh_info, "replicate_process_group", None)


def expect_sharded_alone(model: FSDPModule, what: str) -> None:
    """UsageError if torch sums this model's gradients between shards itself."""
    for name, module in model.named_modules():
        if isinstance(module, FSDPModule) and any(map(replicas_of, groups_of(module))):
            raise UsageError(f"torch itself sums the gradients of module '{name}' over a dimension of its "
                             "mesh (a mesh of two dimensions, or replicate), and nothing is left for "
                             f"{what}: fully_shard it over the mesh of one dimension within a node, or give that "
                             "dimension the backend winnow, by backend_override of init_device_mesh")


def expect_apart(model: FSDPModule, between: dist.ProcessGroup) -> None:
    """UsageError unless the ranks of `between` hold equal shards."""
    others = set(dist.get_process_group_ranks(between)) - {dist.get_rank()}
    for name, module in model.named_modules():
        for group in groups_of(module) if isinstance(module, FSDPModule) else []:
            sharers = _others_of(group)
            shared = others.intersection(() if sharers is None else dist.get_process_group_ranks(sharers))
            if shared:
                raise UsageError("attach_hsdp takes the mesh of the ranks that hold equal shards, not one "
                                 f"with ranks {sorted(shared)}, which hold other shards of module '{name}'")
