// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The graphs of the model of the CUDA runtime: lists of work in the order captured. The model does
// not detect a stream that joined a capture and was not joined again.
#include <cstddef>
#include <utility>

#include "tests/model/cuda_model.hpp"

using namespace winnow::tests;

struct CUgraph_st {
  std::shared_ptr<std::vector<Node>> nodes;
};
struct CUgraphExec_st : CUgraph_st {};

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the library's own names
extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Lock lock = lock_context();
  if (!exists(lock, stream)) return said(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return said(cudaErrorIllegalState);
  stream->capture = std::make_shared<Capture>();
  stream->capture->by = std::this_thread::get_id();
  stream->capture->mode = mode;
  stream->capture->streams = {stream};
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock = lock_context();
  *graph = nullptr;
  if (!exists(lock, stream)) return said(cudaErrorInvalidResourceHandle);
  if (stream->capture == nullptr) return said(cudaErrorIllegalState);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->streams.front() != stream) return said(cudaErrorStreamCaptureUnmatched);
  for (CUstream_st* const captured : std::exchange(capture->streams, {})) {
    captured->capture = nullptr;
  }
  if (capture->broken) return said(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{std::make_shared<std::vector<Node>>(std::move(capture->nodes))};
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(capture_mode, *mode);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock lock = lock_context();
  if (!exists(lock, stream)) return said(cudaErrorInvalidResourceHandle);
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->broken  ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new CUgraphExec_st{*graph};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Lock lock = lock_context();
  for (const Node& node : *executable->nodes) {
    const cudaError_t status = enqueue_or_capture(lock, stream, node);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  for (std::size_t i = 0; nodes != nullptr && i < *count; ++i) {
    nodes[i] = reinterpret_cast<cudaGraphNode_t>(&(*graph->nodes)[i]);
  }
  *count = graph->nodes->size();
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = reinterpret_cast<const Node*>(node)->type;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
