// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "comm/transport/shm/shared_mapping.hpp"

namespace winnow::comm {

/// Messages from one rank to another of its machine: a ring of bytes in memory that both have
/// mapped. One of them writes, the other reads; neither waits. Whoever goes to sleep until the
/// other has done its part says so in the ring, and the other then rings a bell, an eventfd.
/// In the child of a fork nothing can be read or written.
class SharedRing {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 18;

  SharedRing() = default;
  /// Makes a ring; it is not open, and errno set, if the system has no such memory.
  static SharedRing make() noexcept;
  /// Maps a ring that another process made; not open if `memory` is no ring.
  static SharedRing map(Socket memory) noexcept;

  bool is_open() const { return static_cast<bool>(mapping_); }
  /// To pass to the other process.
  const Socket& memory() const { return memory_; }
  /// The bell of the rank at the other end.
  void set_bell(Socket bell) { bell_ = std::move(bell); }

  // The writer's calls.
  bool can_write() const;
  /// Writes as much as fits; returns the bytes. Wakes a reader that sleeps.
  std::uint64_t write(std::span<const iovec> pieces);
  void set_writer_sleeps(bool sleeps);

  // The reader's calls.
  bool can_read() const;
  /// Reads as much as there is; returns the bytes. Wakes a writer that sleeps when half of the ring
  /// is free.
  std::uint64_t read(std::span<const iovec> pieces);
  /// Wakes a writer that sleeps: this rank reads no more for now.
  void release_writer();
  void set_reader_sleeps(bool sleeps);

 private:
  struct State;
  State& state() const;
  void ring_bell() const noexcept;

  Socket memory_;
  Socket bell_;
  SharedMapping mapping_;
};

}  // namespace winnow::comm
