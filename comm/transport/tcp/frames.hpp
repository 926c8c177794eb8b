// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/transport/shm/shared_ring.hpp"
#include "comm/transport/tcp/connection.hpp"

namespace winnow::comm {

/// The header of each message on a data connection, little-endian.
struct FrameHeader {
  std::uint64_t magic = kMagic;
  std::uint64_t message_bytes = 0;

  static constexpr std::uint64_t kMagic = 0x6d617266'574e4e57;  // "WNNWfram"
};
static_assert(sizeof(FrameHeader) == 16);

/// Collects pieces of memory and sends them with one call.
class FrameWriter {
 public:
  bool has_room() const { return count_ + 2 <= pieces_.size(); }
  bool empty() const { return count_ == 0; }
  void add(std::span<const std::byte> piece);
  /// Writes what was added into a ring, as far as it fits. Returns the bytes written.
  std::uint64_t send(SharedRing& ring) { return ring.write({pieces_.data(), count_}); }
  /// Sends what was added, as far as the connection takes it now. Returns the bytes sent. is_full()
  /// and error() then say why they are fewer, if they are.
  std::uint64_t send(const Connection& connection);
  bool is_full() const { return full_; }
  int error() const { return error_; }

 private:
  std::array<iovec, 32> pieces_{};
  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
  bool full_ = false;
  int error_ = 0;
};

/// Reads messages from a connection, or from a ring if it is given one. A long
/// message goes straight to the caller's buffer; the first bytes of what follows it come with the
/// same system call and wait in here.
class FrameReader {
 public:
  void use(SharedRing* ring) { ring_ = ring; }
  /// Reads until the next message's size is known: open() then says so.
  void read_header(const Connection& connection);
  bool is_open() const { return open_; }
  /// Bytes of the open message.
  std::uint64_t message_bytes() const { return message_bytes_; }
  /// Reads the open message into `buffer`, which holds it, as far as it has arrived. True once all
  /// of it has; it is then no longer open.
  bool read_message(const Connection& connection, std::byte* buffer);
  /// Bytes of the open message that have arrived.
  std::uint64_t arrived() const { return arrived_; }

  /// Whether reading is worth while: no, once the connection was empty, until wake().
  bool is_awake() const { return awake_ || begin_ != end_; }
  void wake(bool ending) {
    awake_ = true;
    ending_ |= ending;
  }
  /// Why nothing more will come, or empty.
  const std::string& problem() const { return problem_; }

 private:
  std::span<std::byte> staged() { return std::span(stage_).subspan(begin_, end_ - begin_); }
  std::uint64_t read(const Connection& connection, std::span<std::byte> direct);

  SharedRing* ring_ = nullptr;
  std::array<std::byte, 4096> stage_;
  std::size_t begin_ = 0, end_ = 0;  // bytes that wait in stage_
  std::uint64_t message_bytes_ = 0, arrived_ = 0;
  bool open_ = false;
  bool awake_ = true;
  bool ending_ = false;  // the peer has closed its end, behind what can still be read
  std::string problem_;
};

}  // namespace winnow::comm
