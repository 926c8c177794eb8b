// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "comm/transport/socket.hpp"

namespace winnow::comm {

/// A file's memory, mapped for this process and the others that map it; none by default.
class SharedMapping {
 public:
  SharedMapping() = default;
  /// The first `bytes` of a file. None, and errno set, if the system does not map it.
  SharedMapping(const Socket& file, std::size_t bytes) noexcept;
  SharedMapping(SharedMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  SharedMapping& operator=(SharedMapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMapping();

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A new file of `bytes` zeros in memory. `flags`: of memfd_create. Not open, and errno set, if the
/// system gives none.
Socket make_memory_file(std::size_t bytes, unsigned flags = 0) noexcept;

}  // namespace winnow::comm
