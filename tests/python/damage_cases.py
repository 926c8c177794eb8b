# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Files of save_checkpoint that are not what their ranks have written."""
import os
import pathlib
import shutil

import torch
import torch.distributed as dist

import winnow
import winnow.torch
from restart_cases import attached, shared_folder
from torch_harness import DEVICE, SIZE, expect, refused, step
from winnow.torch import sealed
from winnow.torch.attach import state_of


def flipped(good, offset):
    return good[:offset] + bytes([good[offset] ^ 4]) + good[offset + 1:]


def forged(path, change, good):
    """A file with the right digest of another content."""
    path.write_bytes(good)
    content = torch.load(path, weights_only=True)
    sealed.save(change(content), os.fspath(path))


class Code:
    """Runs where a pickle of it is loaded."""

    def __reduce__(self):
        return exec, ("import winnow; winnow.was_run = True",)


def other_shapes(content):
    moments = {number: {key: value if key == "rule" else value.flatten()[:1]
                        for key, value in held.items()} for number, held in content["moments"].items()}
    return {**content, "moments": moments}


DAMAGES = {  # of a rank's file, given its path, that of another rank, and its bytes; and what is said
    "a flip in the moments": (lambda path, other, good: path.write_bytes(flipped(good, len(good) // 2)),
                              "damaged"),
    "a flip in the digest": (lambda path, other, good: path.write_bytes(flipped(good, len(good) - 1)),
                             "damaged"),
    "cut": (lambda path, other, good: path.write_bytes(good[:len(good) // 2]), "no checksum"),
    "cut by a byte": (lambda path, other, good: path.write_bytes(good[:-1]), "damaged"),
    "longer": (lambda path, other, good: path.write_bytes(good + b"x"), "no checksum"),
    "empty": (lambda path, other, good: path.write_bytes(b""), "no checksum"),
    "junk": (lambda path, other, good: path.write_bytes(os.urandom(5000)), "no checksum"),
    "without a digest": (lambda path, other, good: torch.save(torch.ones(3), path), "no checksum"),
    "another rank's": (lambda path, other, good: shutil.copy(other, path), "is the file of 'group0_rank0_of"),
    "a folder": (lambda path, other, good: (path.unlink(), path.mkdir()), "IsADirectoryError"),
    "a tensor": (lambda path, other, good: sealed.save(torch.ones(3), os.fspath(path)), "no file of winnow"),
    "a list": (lambda path, other, good: forged(path, lambda content: {**content, "moments": [1]}, good),
               "no file of winnow"),
    "no residual": (lambda path, other, good: forged(path, lambda content: {**content, "unsent": {}}, good),
                    "is the file of"),
    "code": (lambda path, other, good: sealed.save(Code(), os.fspath(path)), "UnpicklingError"),
    "other shapes": (lambda path, other, good: forged(path, other_shapes, good), "of another model"),
}


def case_damaged_files():
    """A file that is not what its rank has written is an error on all ranks at once, which names it."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    last = ranks - 1
    with shared_folder() as folder:
        ddp, optimizer = attached()
        for number in range(3):
            step(ddp, optimizer, number)
        winnow.torch.save_checkpoint(ddp, folder)
        dist.barrier()
        path, other = (pathlib.Path(folder, f"group0_rank{one}_of{ranks}.pt") for one in (last, 0))
        good = path.read_bytes()
        again, others = attached()
        for name, (damage, why) in DAMAGES.items() if last > 0 else ():
            if rank == 0:
                damage(path, other, good)
            dist.barrier()
            text = refused(lambda: winnow.torch.load_checkpoint(again, folder))
            expect(why in text and (name == "other shapes" or path.name in text)
                   and text.startswith(f"rank {last}: "), f"{name}: {text}")
            expect(not any(others.state.values()), f"{name}: nothing is changed")
            expect(not hasattr(winnow, "was_run"), f"{name}: no code runs")
            dist.barrier()
            if rank == 0 and path.is_dir():
                path.rmdir()
        if rank == 0:
            path.write_bytes(good)
        dist.barrier()
        winnow.torch.load_checkpoint(again, folder)
        for ours, theirs in zip(ddp.parameters(), again.parameters()):
            held, loaded = optimizer.state[ours], others.state[theirs]
            expect(held.keys() == loaded.keys() and all(torch.equal(held[key], loaded[key]) for key in held),
                   "then moments are loaded")
        waits, after = (state_of(one).residual(one.module[0].weight) for one in (ddp, again))
        expect(torch.equal(waits, after), "and what waits")
        state_of(again).close()
        state_of(ddp).close()


def case_flips():
    """Each flip of a bit in a rank's file is noticed."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    with shared_folder() as folder:
        ddp, optimizer = attached(model=torch.nn.Sequential(torch.nn.Linear(SIZE, 8)).to(DEVICE))
        for number in range(2):
            step(ddp, optimizer, number)
        winnow.torch.save_checkpoint(ddp, folder)
        path = pathlib.Path(folder, f"group0_rank{rank}_of{ranks}.pt")
        good = path.read_bytes()
        expect(sealed.load(os.fspath(path))["moments"], "as it was saved")
        offsets = {*range(0, len(good), len(good) // 200), *range(len(good) - 44, len(good))}
        unnoticed = []
        for offset in offsets:
            path.write_bytes(flipped(good, offset))
            if not refused(lambda: sealed.load(os.fspath(path))):
                unnoticed.append(offset)
        expect(not unnoticed, f"flips at {unnoticed} of {len(good)}")
        state_of(ddp).close()
