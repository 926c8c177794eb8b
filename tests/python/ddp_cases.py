# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=N ddp_cases.py [--backend NAME] [--share I/N] [CASE...]

winnow.torch on processes that torchrun starts, as a job over gloo or another backend. Without CASE: all but
`killed`, whose last rank dies, and `default_group`, for --backend winnow; with --share of these every N-th
from the I-th (from 0) on.
Each rank exits with 0 if and only if nothing failed; rank 0 names the cases. CASES_ON=cuda has models
on the GPUs, one or several, of this machine.
"""
import argparse

import torch
import torch.distributed as dist

import attach_cases
import backend_cases
import backend_identity_cases
import backend_life_cases
import change_cases
import clip_cases
import damage_cases
import fsdp_cases
import group_cases
import group_optimizer_cases
import hook_cases
import hsdp_cases
import life_cases
import marks_cases
import native_cases
import optimizer_cases
import pass_cases
import report_cases
import restart_cases
import state_cases
import unapplied_cases
import warning_cases
from torch_harness import DEVICE, say

MODULES = [optimizer_cases, attach_cases, change_cases, clip_cases, marks_cases, warning_cases, state_cases, life_cases,
           pass_cases, restart_cases, damage_cases, group_cases, unapplied_cases, fsdp_cases, hsdp_cases, native_cases,
           report_cases, backend_cases, backend_identity_cases, backend_life_cases, group_optimizer_cases,
           hook_cases]  # which enables Winnow for all that follows
ALONE = ("killed", "default_group")
if DEVICE.type == "cuda":
    for sharded in fsdp_cases, hsdp_cases, native_cases:  # over gloo torch shards in host memory alone
        MODULES.remove(sharded)


def main():
    torch.set_num_threads(1)
    cases = {name[5:]: case for module in MODULES for name, case in vars(module).items()
             if name.startswith("case_")}
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0].removeprefix("usage: "))
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--share", default="0/1")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)
    first, every = map(int, arguments.share.split("/"))
    for name in arguments.cases or [name for name in cases if name not in ALONE][first::every]:
        cases[name]()
        say("ok", name)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
