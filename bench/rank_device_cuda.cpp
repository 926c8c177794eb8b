// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <string>
#include <winnow/error.hpp>

#include "bench/rank_device.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/cuda/try.hpp"

namespace winnow::bench {
namespace {

/// The device, which is current from here on.
int make_current(int rank_of_node) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  WINNOW_EXPECTS(status == cudaSuccess && devices > 0,
                 "there is no GPU here" +
                     (status == cudaSuccess ? "" : ": " + std::string(cudaGetErrorString(status))));
  const int device = rank_of_node % devices;
  WINNOW_CUDA_TRY(cudaSetDevice(device));
  return device;
}

}  // namespace

struct RankDevice::Impl {
  explicit Impl(int rank_of_node) : device(make_current(rank_of_node)) {}

  int device;
  kernels::cuda::Stream stream;
};

RankDevice::RankDevice(int rank_of_node) : impl_(std::make_unique<Impl>(rank_of_node)) {}
RankDevice::~RankDevice() = default;
RankDevice::RankDevice(RankDevice&&) noexcept = default;

int RankDevice::number() const {
  return impl_->device;
}

Exec RankDevice::exec() const {
  return impl_->stream.exec();
}

struct RankGraph::Impl {
  cudaStream_t stream = nullptr;
  cudaGraphExec_t graph = nullptr;

  ~Impl() {
    if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
  }
};

RankGraph::RankGraph(const Exec& where, const std::function<void()>& work)
    : impl_(std::make_unique<Impl>()) {
  impl_->stream = static_cast<cudaStream_t>(where.stream);
  WINNOW_CUDA_TRY(cudaStreamBeginCapture(impl_->stream, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    (void)cudaStreamEndCapture(impl_->stream, &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    throw;
  }
  WINNOW_CUDA_TRY(cudaStreamEndCapture(impl_->stream, &graph));
  const cudaError_t status = cudaGraphInstantiate(&impl_->graph, graph, 0);
  WINNOW_CUDA_TRY(cudaGraphDestroy(graph));
  WINNOW_CUDA_TRY(status);
}
RankGraph::~RankGraph() = default;
RankGraph::RankGraph(RankGraph&&) noexcept = default;

void RankGraph::launch() const {
  WINNOW_CUDA_TRY(cudaGraphLaunch(impl_->graph, impl_->stream));
}

}  // namespace winnow::bench
