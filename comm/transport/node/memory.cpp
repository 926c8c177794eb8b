// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/node/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>

namespace winnow::comm {
namespace {

constexpr std::size_t kBegin = 64;

std::uint64_t token_of(const std::byte* mapped) {
  std::uint64_t token;
  std::memcpy(&token, mapped, sizeof token);
  return token;
}

}  // namespace

NodeMemory::NodeMemory(NodeMemory&& other) noexcept
    : mapped_(std::exchange(other.mapped_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

NodeMemory& NodeMemory::operator=(NodeMemory&& other) noexcept {
  std::swap(mapped_, other.mapped_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

NodeMemory::~NodeMemory() {
  close_to_others();
  if (mapped_ != nullptr) ::munmap(mapped_, size_);
}

std::byte* NodeMemory::map(int descriptor, std::size_t size) noexcept {
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

NodeMemory NodeMemory::make(std::size_t bytes) {
  const std::size_t size = kBegin + bytes;
  const int descriptor = ::memfd_create("winnow", MFD_CLOEXEC);
  if (descriptor < 0) return {};
  std::byte* const mapped =
      ::ftruncate(descriptor, static_cast<off_t>(size)) == 0 ? map(descriptor, size) : nullptr;
  NodeMemory made(mapped, size, descriptor);
  if (mapped == nullptr) return {};
  std::random_device random;
  const std::uint64_t token = std::uint64_t{random()} << 32 | random();
  std::memcpy(mapped, &token, sizeof token);
  return made;
}

NodeMemory NodeMemory::open(const Address& address, std::size_t bytes) {
  if (address.descriptor < 0) return {};
  const std::size_t size = kBegin + bytes;
  const std::string path =
      "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.descriptor);
  struct stat status {};  // of anything, in another namespace
  const bool fits = ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
                    status.st_size == static_cast<off_t>(size);
  const int descriptor = fits ? ::open(path.c_str(), O_RDWR | O_CLOEXEC) : -1;
  if (descriptor < 0) return {};
  NodeMemory found(map(descriptor, size), size, descriptor);
  found.close_to_others();
  if (!found || token_of(found.mapped_) != address.token) return {};
  return found;
}

std::span<std::byte> NodeMemory::bytes() const {
  if (mapped_ == nullptr) return {};
  return {mapped_ + kBegin, size_ - kBegin};
}

NodeMemory::Address NodeMemory::address() const {
  if (mapped_ == nullptr) return {};
  return {.token = token_of(mapped_), .process = ::getpid(), .descriptor = descriptor_};
}

void NodeMemory::close_to_others() noexcept {
  if (const int descriptor = std::exchange(descriptor_, -1); descriptor >= 0) ::close(descriptor);
}

}  // namespace winnow::comm
