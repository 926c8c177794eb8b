// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <winnow/conformance/world.hpp>

#include "kernels/exec/device_scope.hpp"
#include "kernels/exec/place_memory.hpp"
#include "tests/harness/device.hpp"

namespace winnow::tests {

/// A rank's memory on the current device, and its stream. Copies to the device are only enqueued;
/// what a wait has completed is read by another stream.
class DeviceMemory final : public conformance::Memory {
 public:
  DeviceMemory() = default;
  /// After a failure copies may still be enqueued, on streams of the transport too.
  ~DeviceMemory() override {
    const kernels::DeviceScope scope(device_);
    (void)cudaDeviceSynchronize();
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  Exec exec() override {
    return {.place = Place::cuda,
            .stream = stream_.get(),
            .workspace = &workspace_,
            .device_workspace = &device_workspace_,
            .pinned_workspace = &pinned_workspace_};
  }
  std::span<std::byte> allocate(std::size_t bytes) override {
    return blocks_.emplace_back(bytes).span();
  }
  void write(std::span<std::byte> to, std::span<const std::byte> from) override {
    const auto& host = sources_.emplace_back(from.begin(), from.end());
    kernels::cuda::enqueue_copy(to, std::span<const std::byte>(host), stream_);
  }
  void read_received(std::span<std::byte> to, std::span<const std::byte> from) override {
    read(to, from, other_);
  }
  void read_result(std::span<std::byte> to, std::span<const std::byte> from) override {
    read(to, from, stream_);
  }

 private:
  static void read(std::span<std::byte> to, std::span<const std::byte> from, const Stream& stream) {
    kernels::cuda::enqueue_copy(to, from, stream);
    stream.synchronize();
  }

  int device_ = kernels::current_device(Place::cuda);
  Stream stream_, other_;
  Workspace device_workspace_{kernels::cuda::kDeviceMemory};
  Workspace pinned_workspace_{kernels::pinned_memory()};
  std::deque<DeviceArray<std::byte>> blocks_;
  std::deque<conformance::Bytes> sources_;  // copies from them may not have happened yet
};

}  // namespace winnow::tests
