# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: python torchft_case.py

Two replica groups of torchft train over the backend winnow. One is killed within a backward pass, while the
other waits for its sum, and comes back; both end at the same step. Exits with 0 if and only if each pair
of them has compressed, no failed sum has moved a parameter, and parameters are equal in the end.
"""
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref

import torch
import torch.distributed as dist

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2] / "examples/pytorch"))

from trainer_cases import held_out_loss
from transformer import Transformer

KILLED_AFTER, STEPS = 12, 30  # steps that both have made together


def digest(model):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def replica(is_killed):
    """One replica group, of this process. Prints what it has seen, in one line."""
    from with_torchft import training
    torch.set_num_threads(1)
    torch.manual_seed(1)
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(store.port), RANK="0", WORLD_SIZE="1")
    model = Transformer(width=64, layers=1)
    together, failures, compressed, current = 0, [], [], None
    first_loss = held_out_loss(model)

    def load_together(count):
        nonlocal together
        together = count

    def kill(_):
        if is_killed and together == KILLED_AFTER:
            manager.wait_quorum()  # so that the other replica has this one in its step, too
            os.kill(os.getpid(), signal.SIGKILL)

    model.out.weight.register_hook(kill)
    before = manager = None
    for manager, group in training(model):
        if before is None:
            manager.register_state_dict_fn("together", load_together, lambda: together)
        else:
            if manager.current_step() == before[0]:
                assert digest(model) == before[1], "a failed sum was committed"
                failures.append(str(manager.errored()))
            elif manager.num_participants() == 2:
                together += 1
            if current is None or current() is not group.parent:
                current = weakref.ref(group.parent)
                compressed.append(0)
            compressed[-1] = group.parent._why[""]
        if together == STEPS:
            break
        before = manager.current_step(), digest(model)
    print(json.dumps({
        "digest": digest(model), "step": manager.current_step(), "failures": failures,
        "compressed": compressed, "threads": [one.name for one in threading.enumerate()].count("winnow sums"),
        "losses": [first_loss, held_out_loss(model)]}), flush=True)
    group.shutdown()
    manager.shutdown()


def expect_status(ends, status, meanwhile=None):
    """Once a replica has ended. It would wait for ever for another one that has failed."""
    while ends[0].poll() is None and (meanwhile is None or meanwhile[0].poll() in (None, 0)):
        time.sleep(0.05)
    for process, right in (ends, status), (meanwhile or ends, 0 if meanwhile else status):
        if process[0].poll() not in (None, right):
            for each in filter(None, (ends, meanwhile)):
                each[0].kill()
            raise AssertionError(f"a replica ended by {process[0].returncode}, and not by {right}")


def main():
    from torchft.coordination import LighthouseServer
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=1000,
                                  heartbeat_timeout_ms=5000)

    def start(number, *options):
        environment = {**os.environ, "TORCHFT_LIGHTHOUSE": lighthouse.address(),
                       "REPLICA_GROUP_ID": str(number)}
        output = tempfile.TemporaryFile("w+")
        return subprocess.Popen([sys.executable, __file__, "--replica", *options], env=environment,
                                stdout=output), output

    killed, other = start(0, "--killed"), start(1)
    expect_status(killed, -signal.SIGKILL, other)
    back = start(0)
    expect_status(back, 0, other)
    expect_status(other, 0)
    results = []
    for _, output in back, other:
        output.seek(0)
        results.append(json.loads(output.read().splitlines()[-1]))
    print(*results, sep="\n")
    lighthouse.shutdown()

    back, alone = results
    assert back["digest"] == alone["digest"] and back["step"] == alone["step"], "replicas are equal"
    assert sum(count > 5 for count in alone["compressed"]) >= 2, "sums of both pairs are compressed"
    assert back["compressed"][-1] > 5, "sums of the replica that came back"
    assert any("is gone" in one for one in alone["failures"]), "the sum that failed says why"
    assert alone["threads"] <= 1, "groups of earlier quorums have ended"
    first, last = alone["losses"]
    assert last < first - 1, "the loss falls"
    print("ok torchft")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--replica"]:
        replica("--killed" in sys.argv)
    else:
        main()
