// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tests/harness/device.hpp"

namespace winnow::tests {

/// Owns a CUDA graph of what `work` enqueues on a stream.
class Graph {
 public:
  template <class Work>
  Graph(const Stream& stream, const Work& work,
        cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    WINNOW_CUDA_TRY(cudaStreamBeginCapture(stream.get(), mode));
    work();
    cudaGraph_t graph = nullptr;
    WINNOW_CUDA_TRY(cudaStreamEndCapture(stream.get(), &graph));
    nodes_ = types_of(graph);
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

  /// The number of nodes of a type.
  std::size_t count(cudaGraphNodeType type) const {
    return static_cast<std::size_t>(std::ranges::count(nodes_, type));
  }

 private:
  static std::vector<cudaGraphNodeType> types_of(cudaGraph_t graph) {
    std::size_t count = 0;
    WINNOW_CUDA_TRY(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    WINNOW_CUDA_TRY(cudaGraphGetNodes(graph, nodes.data(), &count));
    std::vector<cudaGraphNodeType> types(count);
    for (std::size_t i = 0; i < count; ++i) {
      WINNOW_CUDA_TRY(cudaGraphNodeGetType(nodes[i], &types[i]));
    }
    return types;
  }

  cudaGraphExec_t executable_ = nullptr;
  std::vector<cudaGraphNodeType> nodes_;
};

}  // namespace winnow::tests
