// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/harness/device.hpp"
#include "tests/kernels/around.hpp"

namespace winnow::tests {

/// A span of the host in device memory, as far past a multiple of 16 bytes as it is on the host.
template <class T>
class OnDevice {
 public:
  OnDevice(std::span<const T> host, const Stream& stream)
      : stream_(stream),
        offset_(reinterpret_cast<std::uintptr_t>(host.data()) % 16 / sizeof(T)),
        memory_(offset_ + host.size()) {
    kernels::cuda::enqueue_copy(span(), host, stream_);
    stream_.synchronize();
  }
  std::span<T> span() const { return memory_.span().subspan(offset_); }
  void download(std::span<T> host) const {
    kernels::cuda::enqueue_copy(host, span(), stream_);
    stream_.synchronize();
  }

 private:
  const Stream& stream_;
  std::size_t offset_;
  DeviceArray<T> memory_;
};

/// `elements` of the host with what lies about them on the device, so that a write outside shows.
class Surrounded {
 public:
  Surrounded(std::span<float> elements, const Stream& stream)
      : host_(elements.data() - kAround, elements.size() + 2 * kAround), device_(host_, stream) {}

  std::span<float> span() const {
    return device_.span().subspan(kAround, host_.size() - 2 * kAround);
  }
  void download() const { device_.download(host_); }

 private:
  std::span<float> host_;
  OnDevice<float> device_;
};

}  // namespace winnow::tests
