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

/// The device, current from here on.
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

}  // namespace winnow::bench
