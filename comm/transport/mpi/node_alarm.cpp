// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/mpi/node_alarm.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <string>
#include <utility>

namespace winnow::comm {

struct NodeAlarm::Shared {
  std::uint64_t token;
  std::uint32_t raised;
};

NodeAlarm::NodeAlarm(NodeAlarm&& other) noexcept
    : shared_(std::exchange(other.shared_, nullptr)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

NodeAlarm& NodeAlarm::operator=(NodeAlarm&& other) noexcept {
  std::swap(shared_, other.shared_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

NodeAlarm::~NodeAlarm() {
  close_to_others();
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

NodeAlarm::Shared* NodeAlarm::map(int descriptor) noexcept {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Shared*>(memory);
}

NodeAlarm NodeAlarm::make() {
  const int descriptor = ::memfd_create("winnow", MFD_CLOEXEC);
  if (descriptor < 0) return {};
  Shared* const shared = ::ftruncate(descriptor, sizeof(Shared)) == 0 ? map(descriptor) : nullptr;
  NodeAlarm made(shared, descriptor);
  if (shared == nullptr) return {};
  std::random_device random;
  shared->token = std::uint64_t{random()} << 32 | random();
  return made;
}

NodeAlarm NodeAlarm::open(const Address& address) {
  if (address.descriptor < 0) return {};
  const std::string path =
      "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.descriptor);
  struct stat status {};  // of anything, in another namespace
  const bool fits = ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
                    status.st_size == sizeof(Shared);
  const int descriptor = fits ? ::open(path.c_str(), O_RDWR | O_CLOEXEC) : -1;
  if (descriptor < 0) return {};
  NodeAlarm found(map(descriptor), descriptor);
  found.close_to_others();
  if (!found || found.shared_->token != address.token) return {};
  return found;
}

NodeAlarm::Address NodeAlarm::address() const {
  if (shared_ == nullptr) return {};
  return {.token = shared_->token, .process = ::getpid(), .descriptor = descriptor_};
}

void NodeAlarm::close_to_others() noexcept {
  if (const int descriptor = std::exchange(descriptor_, -1); descriptor >= 0) ::close(descriptor);
}

void NodeAlarm::raise() noexcept {
  std::atomic_ref(shared_->raised).store(1, std::memory_order_release);
}

bool NodeAlarm::raised() const noexcept {
  return std::atomic_ref(shared_->raised).load(std::memory_order_acquire) != 0;
}

}  // namespace winnow::comm
