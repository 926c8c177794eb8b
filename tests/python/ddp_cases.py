# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=N ddp_cases.py [CASE...]

winnow.torch on processes that torchrun starts. Without CASE: all but `killed`, whose last rank dies.
Each rank exits with 0 if and only if nothing failed; rank 0 names the cases. CASES_ON=cuda has models
on the GPUs, one or several, of this machine.
"""
import sys

import torch
import torch.distributed as dist

import hook_cases
import hsdp_cases
import optimizer_cases
import state_cases
from torch_harness import DEVICE, say

# Not by default: those that end the processes, and, over gloo, what torch itself shards on GPUs alone.
ASKED_FOR = {"case_killed"} | (set(vars(hsdp_cases)) if DEVICE.type == "cuda" else set())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cases = {name[5:]: case for module in (optimizer_cases, state_cases, hsdp_cases, hook_cases)
             for name, case in vars(module).items() if name.startswith("case_")}
    for name in sys.argv[1:] or [name for name in cases if "case_" + name not in ASKED_FOR]:
        cases[name]()
        say("ok", name)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
