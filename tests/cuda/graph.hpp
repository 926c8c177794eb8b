// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "tests/cuda/device.hpp"

namespace winnow::tests {

/// Owns a CUDA graph of what `work` enqueues on a stream.
class Graph {
 public:
  template <class Work>
  Graph(const Stream& stream, const Work& work) {
    WINNOW_CUDA_TRY(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    work();
    cudaGraph_t graph = nullptr;
    WINNOW_CUDA_TRY(cudaStreamEndCapture(stream.get(), &graph));
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    WINNOW_CUDA_TRY(cudaGraphDestroy(graph));
    WINNOW_CUDA_TRY(status);
  }
  ~Graph() { (void)cudaGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(const Stream& stream) const {
    WINNOW_CUDA_TRY(cudaGraphLaunch(executable_, stream.get()));
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace winnow::tests
