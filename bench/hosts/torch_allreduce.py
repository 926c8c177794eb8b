# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun ... bench/hosts/torch_allreduce.py [BYTES]

Dense sums of host memory by torch.distributed over gloo and by Winnow, in turns: median
milliseconds of 20 calls, with a barrier before and after each.
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

import winnow
from winnow.torch.meeting import meet


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 25_000_000
    data = torch.ones(size // 4)
    reducer = winnow.Reducer(meet(None, 60, torch.device("cpu")), "none", op="sum", deadline=60)
    calls = {"gloo": lambda: dist.all_reduce(data), "winnow": lambda: reducer.all_reduce(data, id=0)}
    times = {name: [] for name in calls}
    for _ in range(25):  # the first 5 warm up
        for name, call in calls.items():
            data.fill_(1)
            dist.barrier()
            begin = time.perf_counter()
            call()
            dist.barrier()
            times[name].append(1000 * (time.perf_counter() - begin))
    if dist.get_rank() == 0:
        for name, taken in times.items():
            print(f"{name} {size} bytes: {statistics.median(taken[5:]):.2f} ms")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
