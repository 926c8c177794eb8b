// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shm/node_memory.hpp"

#include <fcntl.h>
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

NodeMemory::NodeMemory(NodeMemory&& other) noexcept = default;
NodeMemory& NodeMemory::operator=(NodeMemory&& other) noexcept = default;
NodeMemory::~NodeMemory() = default;

NodeMemory NodeMemory::make(std::size_t bytes) {
  NodeMemory made(make_memory_file(kBegin + bytes), kBegin + bytes);
  if (!made) return {};
  std::random_device random;
  const std::uint64_t token = std::uint64_t{random()} << 32 | random();
  std::memcpy(made.mapping_.data(), &token, sizeof token);
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
  if (!fits) return {};
  NodeMemory found(Socket(::open(path.c_str(), O_RDWR | O_CLOEXEC)), size);
  found.close_to_others();
  if (!found || token_of(found.mapping_.data()) != address.token) return {};
  return found;
}

NodeMemory::NodeMemory(Socket file, std::size_t size) noexcept
    : mapping_(file, size), file_(std::move(file)) {}

std::span<std::byte> NodeMemory::bytes() const {
  if (!mapping_) return {};
  return {mapping_.data() + kBegin, mapping_.size() - kBegin};
}

NodeMemory::Address NodeMemory::address() const {
  if (!mapping_) return {};
  return {.token = token_of(mapping_.data()), .process = ::getpid(), .descriptor = file_.get()};
}

void NodeMemory::close_to_others() noexcept {
  file_.close();
}

}  // namespace winnow::comm
