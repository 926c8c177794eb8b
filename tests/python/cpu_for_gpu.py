# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Host memory in place of GPUs, for tests of torch that name GPUs and need none."""
import functools
import os

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

HOST = torch.device("cpu")


def _is_gpu(value):
    return (isinstance(value, torch.device) and value.type == "cuda"
            or isinstance(value, str) and value.partition(":")[0] == "cuda")


class OnHost(TorchFunctionMode):
    """Functions of torch that get a GPU get host memory instead."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = dict(keywords or {})
        device = keywords.get("device")
        if _is_gpu(device) or isinstance(device, int):
            keywords["device"] = HOST
        if function is torch.Tensor.to and len(arguments) > 1:
            second = arguments[1]
            if _is_gpu(second) or isinstance(second, int):
                arguments = arguments[0], HOST, *arguments[2:]
        return function(*arguments, **keywords)


def stand_in():
    """In this process and its children, before torch's tests are imported."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from torch.testing._internal import common_distributed  # pylint: disable=import-outside-toplevel

    common_distributed.skip_if_lt_x_gpu = lambda *_, **__: lambda test: test
    common_distributed.skip_if_no_gpu = lambda test: test
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    torch.cuda.current_device = lambda: HOST
    torch.cuda.set_device = lambda *_, **__: None
    torch.cuda.synchronize = lambda *_, **__: None
    move, init = torch.nn.Module.to, DistributedDataParallel.__init__

    @functools.wraps(move)
    def moved(self, *arguments, **keywords):
        gpu = arguments and (_is_gpu(arguments[0]) or isinstance(arguments[0], int))
        return move(self, *((HOST, *arguments[1:]) if gpu else arguments), **keywords)

    def on_host(self, module, device_ids=None, output_device=None, *arguments, **keywords):
        init(self, module, None, None, *arguments, **keywords)

    torch.nn.Module.to, DistributedDataParallel.__init__ = moved, on_host
