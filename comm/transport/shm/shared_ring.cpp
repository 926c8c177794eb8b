// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shm/shared_ring.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

namespace winnow::comm {
namespace {

// Bytes after which the other side may go on with what is there, while the rest is copied.
constexpr std::uint64_t kChunk = std::uint64_t{1} << 15;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // so nobody cuts it off

}  // namespace

// `written` and `taken` count bytes for ever; their difference is what the ring holds. The other
// process may put anything there: only their difference, cut to the ring's size, is used.
//
// A side that goes to sleep sets its flag and then looks at the counters again; the other one
// counts and then looks at the flag. With a full fence between the two on both sides, one sees the
// other.
struct SharedRing::State {
  alignas(64) std::atomic<std::uint64_t> written{0};
  alignas(64) std::atomic<std::uint64_t> taken{0};
  alignas(64) std::atomic<std::uint32_t> reader_sleeps{0};
  alignas(64) std::atomic<std::uint32_t> writer_sleeps{0};
  alignas(64) std::array<std::byte, kBytes> bytes;

  std::uint64_t filled() const {
    const std::uint64_t filled =
        written.load(std::memory_order_acquire) - taken.load(std::memory_order_acquire);
    return std::min<std::uint64_t>(filled, kBytes);
  }
  /// The part of the ring from byte `count` on, at most `most` bytes.
  std::span<std::byte> from(std::uint64_t count, std::uint64_t most) {
    const std::size_t begin = count % kBytes;
    return std::span(bytes).subspan(begin, std::min<std::uint64_t>(most, kBytes - begin));
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

SharedRing SharedRing::make() noexcept {
  Socket memory = make_memory_file(sizeof(State), MFD_ALLOW_SEALING);
  if (!memory.is_open() || ::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) return {};
  return map(std::move(memory));
}

SharedRing SharedRing::map(Socket memory) noexcept {
  struct stat file {};
  if (::fstat(memory.get(), &file) != 0 || file.st_size != sizeof(State) ||
      (::fcntl(memory.get(), F_GET_SEALS) & kSeals) != kSeals)
    return {};
  SharedRing ring;
  ring.mapping_ = SharedMapping(memory, sizeof(State));
  if (ring.is_open()) ring.memory_ = std::move(memory);
  return ring;
}

SharedRing::State& SharedRing::state() const {
  return *reinterpret_cast<State*>(mapping_.data());  // zeros at first, as a new State has
}

bool SharedRing::can_write() const {
  return memory_.is_open() && state().filled() < kBytes;
}

std::uint64_t SharedRing::write(std::span<const iovec> pieces) {
  std::uint64_t position = state().written.load(std::memory_order_relaxed);
  const std::uint64_t begin = position;
  for (const iovec& piece : pieces) {
    std::span<const std::byte> rest(static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
    while (!rest.empty()) {
      const std::uint64_t most = std::min({kBytes - state().filled(), kChunk, rest.size()});
      if (most == 0) break;
      const std::span<std::byte> place = state().from(position, most);
      std::memcpy(place.data(), rest.data(), place.size());
      rest = rest.subspan(place.size());
      position += place.size();
      state().written.store(position, std::memory_order_release);
    }
    if (!rest.empty()) break;
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (position != begin && state().reader_sleeps.load(std::memory_order_relaxed) != 0 &&
      state().reader_sleeps.exchange(0) != 0)
    ring_bell();
  return position - begin;
}

bool SharedRing::can_read() const {
  return memory_.is_open() && state().filled() != 0;
}

std::uint64_t SharedRing::read(std::span<const iovec> pieces) {
  std::uint64_t position = state().taken.load(std::memory_order_relaxed);
  const std::uint64_t begin = position;
  for (const iovec& piece : pieces) {
    std::span<std::byte> rest(static_cast<std::byte*>(piece.iov_base), piece.iov_len);
    while (!rest.empty()) {
      const std::uint64_t most = std::min({state().filled(), kChunk, rest.size()});
      if (most == 0) break;
      const std::span<const std::byte> place = state().from(position, most);
      std::memcpy(rest.data(), place.data(), place.size());
      rest = rest.subspan(place.size());
      position += place.size();
      state().taken.store(position, std::memory_order_release);
      if (state().filled() <= kBytes / 2) release_writer();
    }
    if (!rest.empty()) break;
  }
  return position - begin;
}

void SharedRing::release_writer() {
  if (!memory_.is_open()) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (state().writer_sleeps.load(std::memory_order_relaxed) != 0 &&
      state().writer_sleeps.exchange(0) != 0)
    ring_bell();
}

void SharedRing::set_writer_sleeps(bool sleeps) {
  if (!memory_.is_open()) return;
  state().writer_sleeps.store(sleeps ? 1 : 0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void SharedRing::set_reader_sleeps(bool sleeps) {
  if (!memory_.is_open()) return;
  state().reader_sleeps.store(sleeps ? 1 : 0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void SharedRing::ring_bell() const noexcept {
  const std::uint64_t once = 1;
  (void)!::write(bell_.get(), &once, sizeof once);
}

}  // namespace winnow::comm
