# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Winnow: an allreduce for gradients that sends only what matters.

    reducer = winnow.Reducer(winnow.tcp_transport(), "topk:0.01")
    reducer.all_reduce(gradient, id=0)

winnow.torch attaches it to PyTorch's DistributedDataParallel.
"""
from winnow._library import CommError, CudaError, Error, UsageError, library
from winnow.mpi import mpi_transport
from winnow.reducer import Reducer
from winnow.segments import Segment
from winnow.transports import (TcpListener, Transport, local_transports, mixed_transport,
                               nccl_available, nccl_transport, tcp_transport)
from winnow.work import Work

__version__ = library.winnow_version().decode()
__all__ = ["CommError", "CudaError", "Error", "Reducer", "Segment", "TcpListener", "Transport",
           "UsageError", "Work", "local_transports", "mixed_transport", "mpi_transport",
           "nccl_available", "nccl_transport", "tcp_transport"]
