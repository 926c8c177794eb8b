// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/frames.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace winnow::comm {

void FrameWriter::add(std::span<const std::byte> piece) {
  if (piece.empty()) return;
  pieces_[count_++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  bytes_ += piece.size();
}

std::uint64_t FrameWriter::send(const Connection& connection) {
  ::ssize_t sent = -1;
  do {
    sent = connection.write({pieces_.data(), count_});
  } while (sent < 0 && errno == EINTR);
  full_ = sent < 0 && errno == EAGAIN;
  error_ = sent < 0 && errno != EAGAIN ? errno : 0;
  return sent < 0 ? 0 : static_cast<std::uint64_t>(sent);
}

void FrameReader::read_header(const Connection& connection) {
  while (end_ - begin_ < sizeof(FrameHeader)) {
    if (!awake_) return;
    if (begin_ != 0) {
      std::memmove(stage_.data(), staged().data(), staged().size());
      end_ -= begin_;
      begin_ = 0;
    }
    (void)read(connection, {});
  }
  FrameHeader header;
  std::memcpy(&header, staged().data(), sizeof header);
  if (header.magic != FrameHeader::kMagic) {
    problem_ = "what arrives is no message";
    awake_ = false;
    return;
  }
  begin_ += sizeof header;
  message_bytes_ = header.message_bytes;
  arrived_ = 0;
  open_ = true;
}

bool FrameReader::read_message(const Connection& connection, std::byte* buffer) {
  const auto waiting = std::min<std::uint64_t>(end_ - begin_, message_bytes_ - arrived_);
  if (waiting != 0) std::memcpy(buffer + arrived_, staged().data(), waiting);
  begin_ += waiting;
  arrived_ += waiting;
  while (arrived_ != message_bytes_) {
    if (!awake_) return false;
    begin_ = end_ = 0;
    arrived_ += read(connection, {buffer + arrived_, message_bytes_ - arrived_});
  }
  open_ = false;
  return true;
}

// Reads into `direct` and behind it into the stage. Returns the bytes in `direct`.
std::uint64_t FrameReader::read(const Connection& connection, std::span<std::byte> direct) {
  const std::span<std::byte> stage = std::span(stage_).subspan(end_);
  const std::array<iovec, 2> pieces{iovec{direct.data(), direct.size()},
                                    iovec{stage.data(), stage.size()}};
  const ::ssize_t got =
      ring_ != nullptr ? static_cast<::ssize_t>(ring_->read(pieces)) : connection.read(pieces);
  if (got == 0 && ring_ != nullptr) {
    awake_ = false;
    return 0;
  }
  if (got <= 0) {
    if (got < 0 && errno == EINTR) return 0;
    awake_ = false;
    if (got == 0) problem_ = "the connection was closed";
    if (got < 0 && errno != EAGAIN) problem_ = connection.problem_of(errno);
    return 0;
  }
  const auto bytes = static_cast<std::uint64_t>(got);
  // A short read has emptied the connection: the next byte, or the end, is an event of its own.
  if (bytes < direct.size() + stage.size() && !ending_) awake_ = false;
  const std::uint64_t in_direct = std::min<std::uint64_t>(bytes, direct.size());
  end_ += bytes - in_direct;
  return in_direct;
}

}  // namespace winnow::comm
