// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/harness/device.hpp"
#include "tests/kernels/around.hpp"

namespace winnow::tests {

/// A host span in device memory, with the same offset from a multiple of 16 bytes.
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

/// Host `elements` on the device with their surroundings, so that a write outside shows.
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
