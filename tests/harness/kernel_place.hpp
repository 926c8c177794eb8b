// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>
#include <winnow/exec.hpp>

#include "kernels/exec/place_memory.hpp"

namespace winnow::tests {

// An operation's cases run on whatever bodies their program links: in host memory
// (host_bodies.cpp), or on a device, a GPU or its model (device_bodies.cpp).

/// Calls `body` for each way to run an operation: on the host the reference, then the SIMD bodies
/// on every Highway target (the widest under a sanitizer) with 1, 2 and 3 threads; on a device
/// once. The Exec has all workspaces. Skips the test if there is no device.
void for_each_body(const std::function<void(const Exec& exec)>& body);

/// A large count: `most`, or fewer on the model of a device.
std::size_t many(std::size_t most);

/// A list in the memory of a place, with the host list's offset from a multiple of 64 bytes.
template <class T>
class OnPlace {
 public:
  OnPlace(const Exec& exec, std::span<const T> host)
      : exec_(exec),
        offset_(reinterpret_cast<std::uintptr_t>(host.data()) % 64 / sizeof(T)),
        memory_(exec, offset_ + host.size()) {
    upload(host);
  }
  OnPlace(const Exec& exec, const std::vector<T>& host) : OnPlace(exec, std::span<const T>(host)) {}
  /// `count` zeros.
  OnPlace(const Exec& exec, std::size_t count)
      : exec_(exec), offset_(0), memory_(exec, count == 0 ? 1 : count), count_(count) {}

  std::span<T> span() { return memory_.span().subspan(offset_, count_); }
  T* data() { return span().data(); }
  void upload(std::span<const T> host) {
    count_ = host.size();
    kernels::copy(exec_, std::as_writable_bytes(span()), std::as_bytes(host));
    kernels::wait(exec_);
  }
  /// Waits for enqueued work.
  std::vector<T> download() {
    std::vector<T> host(count_);
    kernels::read(exec_, std::as_writable_bytes(std::span(host)), std::as_bytes(span()));
    return host;
  }

 private:
  Exec exec_;
  std::size_t offset_;
  kernels::PlaceArray<T> memory_;
  std::size_t count_ = 0;
};

}  // namespace winnow::tests
