#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Which names of torch and of frameworks winnow.torch uses that are not public: no others than these, and
the installed versions have them."""
import ast
import importlib
import inspect
import unittest
from pathlib import Path

import winnow.torch

# Where each is: a module whose source has it, or a class of C++.
PRIVATE = {
    "_allgather_base": "torch._C._distributed_c10d.ProcessGroup",
    "_all_gather_comm": "torch.distributed.fsdp._fully_shard._fsdp_param_group",
    "_all_gather_result": "torch.distributed.fsdp._fully_shard._fsdp_param_group",
    "_C": "torch",
    "_checkpoint_wrapped_module": "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
    "_clip_grads_with_norm_": "torch.nn.utils.clip_grad",
    "_comm_hooks": "torch.nn.parallel.distributed",
    "_current_autograd_node": "torch._C",
    "_current_graph_task_id": "torch._C",
    "_device_types": "torch._C._distributed_c10d.ProcessGroup",
    "_divide_by_initial_world_size": "torch.nn.parallel.distributed",
    "_end_coalescing": "torch._C._distributed_c10d.ProcessGroup",
    "_engine_run_backward": "torch.autograd.graph",
    "_execution_engine": "torch.autograd.variable",
    "_foreach_norm": "torch",
    "_forward_module": "lightning.fabric.wrappers",
    "_found_inf_per_device": "torch.amp.grad_scaler",
    "_fsdp_param_group": "torch.distributed.fsdp._fully_shard._fsdp_state",
    "_fsdp_param_groups": "",  # of torch 2.10 and later
    "_fsdp_wrapped_module": "torch.distributed.fsdp._common_utils",
    "_get_backend": "torch._C._distributed_c10d.ProcessGroup",
    "_get_ddp_logging_data": "torch.nn.parallel.distributed",
    "_get_fsdp_state": "torch.distributed.fsdp._fully_shard._fully_shard",
    "_get_total_norm": "",  # public from torch 2.7 on, as get_total_norm
    "_in_backward_optimizers": "torch.distributed.optim.apply_optimizer_in_backward",
    "_join_config": "torch.distributed.algorithms.join",
    "_load_optimizer_and_scheduler": "transformers.trainer",
    "_models": "accelerate.accelerator",
    "_optimizer_step_pre_hooks": "torch.optim.optimizer",
    "_orig_mod": "torch._dynamo.eval_frame",
    "_plugins": "torch.distributed.distributed_c10d",
    "_reduce_scatter_base": "torch._C._distributed_c10d.ProcessGroup",
    "_register_backend": "torch._C._distributed_c10d.ProcessGroup",
    "_save_optimizer_and_scheduler": "transformers.trainer",
    "_set_default_backend": "torch._C._distributed_c10d.ProcessGroup",
    "_set_group_desc": "torch._C._distributed_c10d.ProcessGroup",
    "_set_group_name": "torch._C._distributed_c10d.ProcessGroup",
    "_start_coalescing": "torch._C._distributed_c10d.ProcessGroup",
    "_timeout": "torch._C._distributed_c10d.ProcessGroupGloo._Options",
    "_to_sharded": "torch.distributed.fsdp._fully_shard._fsdp_param_group",
    "_unsharded_param": "torch.distributed.fsdp._fully_shard._fsdp_param",
    "_use_post_forward_mesh": "torch.distributed.fsdp._fully_shard._fsdp_param_group",
    "_use_python_reducer": "torch.nn.parallel.distributed",
    "_wrapped_call_impl": "torch.nn.modules.module",
}
OF_PYTHON = {"_getframe", "_", "_ms", "_per_step"}  # and ends of metrics' names


def _is_private(name):
    return name.startswith("_") and not name.startswith("__")


def names():
    """Private names that winnow.torch mentions, less those that the package defines."""
    package = Path(inspect.getfile(winnow)).parent
    used, own = set(), set()
    for file in package.rglob("*.py"):
        of_torch = package / "torch" in file.parents
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                own.add(node.name)
            elif isinstance(node, ast.Attribute):
                (own if isinstance(node.ctx, ast.Store) else used if of_torch else set()).add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
            elif of_torch and isinstance(node, ast.Constant) and isinstance(node.value, str) and (
                    node.value.isidentifier()):
                used.add(node.value)
    return {name for name in used - (own - set(PRIVATE)) if _is_private(name)} - OF_PYTHON


def has(place, name):
    """Whether a module, or a class of C++, has it; also an attribute that instances get."""
    parts = place.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
            break
        except ImportError:
            continue
    for part in parts[length:]:
        found = getattr(found, part)
    if hasattr(found, name):
        return True
    return inspect.ismodule(found) and hasattr(found, "__file__") and name in inspect.getsource(found)


class PrivateNames(unittest.TestCase):
    def test_no_others_are_used(self):
        self.assertEqual(names() - set(PRIVATE), set())
        self.assertEqual(set(PRIVATE) - names(), set())

    def test_this_version_has_them(self):
        for name, place in PRIVATE.items():
            with self.subTest(name=name, place=place):
                self.assertTrue(not place or has(place, name))


if __name__ == "__main__":
    unittest.main()
