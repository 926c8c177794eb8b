// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shm/shared_mapping.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace winnow::comm {

SharedMapping::SharedMapping(const Socket& file, std::size_t bytes) noexcept {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Socket make_memory_file(std::size_t bytes, unsigned flags) noexcept {
  Socket file(::memfd_create("winnow", MFD_CLOEXEC | flags));
  if (!file.is_open() || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return Socket();
  return file;
}

}  // namespace winnow::comm
