// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/peer.hpp"

#include <span>
#include <utility>

namespace winnow::comm {

void TcpPeer::open(TcpLink& link) {
  data_ = std::move(link.data);
  if (!link.in.is_open()) return;
  in_ = std::move(link.in);
  out_ = std::move(link.out);
  reader_.use(&in_);
}

void TcpPeer::append(TcpMessages& messages, std::uint64_t number) {
  (messages[number].is_send ? sends_ : receipts_).append(messages, number);
}

bool TcpPeer::send(TcpMessages& messages) {
  unwritten_ = false;
  if (has_rings()) writable_ = out_.can_write();
  while (is_sending() && writable_) {
    FrameWriter writer;
    gather(messages, writer);
    if (writer.empty()) {
      unwritten_ = true;
      return false;
    }
    if (has_rings()) {
      advance(messages, writer.send(out_));
      writable_ = out_.can_write();
      continue;
    }
    const std::uint64_t sent = writer.send(data_);
    if (writer.error() != 0) send_problem_ = data_.problem_of(writer.error());
    writable_ = writer.error() == 0 && !writer.is_full();
    advance(messages, sent);
  }
  return true;
}

/// Adds what is left of the sends and is written.
void TcpPeer::gather(const TcpMessages& messages, FrameWriter& writer) const {
  std::uint64_t sent = sent_;
  for (std::uint64_t n = sends_.current; n != TcpMessage::kNone && writer.has_room();
       n = messages[n].next) {
    const TcpMessage& message = messages[n];
    constexpr std::uint64_t kHeader = sizeof(FrameHeader);
    const std::uint64_t ready = message.written == nullptr ? message.bytes : *message.written;
    const std::uint64_t begin = sent > kHeader ? sent - kHeader : 0;
    if (sent < kHeader) writer.add(std::as_bytes(std::span(&message.header, 1)).subspan(sent));
    if (begin < ready) writer.add({message.data + begin, ready - begin});
    if (ready < message.bytes) return;
    sent = 0;
  }
}

void TcpPeer::advance(TcpMessages& messages, std::uint64_t sent) {
  sent_ += sent;
  while (is_sending()) {
    TcpMessage& message = messages[sends_.current];
    const std::uint64_t frame = sizeof(FrameHeader) + message.bytes;
    if (sent_ < frame) return;
    sent_ -= frame;
    message.complete = true;
    sends_.current = message.next;
  }
}

std::string TcpPeer::receive(TcpMessages& messages) {
  if (has_rings() && in_.can_read()) reader_.wake(false);
  while (is_receiving() && reader_.is_awake()) {
    TcpMessage& message = messages[receipts_.current];
    if (!reader_.is_open()) reader_.read_header(data_);
    if (!reader_.is_open()) break;
    if (reader_.message_bytes() > message.bytes) {
      return "a message of " + std::to_string(reader_.message_bytes()) + " bytes from rank " +
             std::to_string(message.peer) + " is longer than its buffer of " +
             std::to_string(message.bytes);
    }
    message.complete = reader_.read_message(data_, message.data);
    if (message.arrived != nullptr) *message.arrived = reader_.arrived();
    if (!message.complete) continue;
    if (message.message_bytes != nullptr) *message.message_bytes = reader_.message_bytes();
    receipts_.current = message.next;
  }
  if (has_rings()) in_.release_writer();
  return "";
}

bool TcpPeer::set_sleeping(bool sleeps) {
  bool may_sleep = true;
  if (is_receiving()) {
    in_.set_reader_sleeps(sleeps);
    may_sleep &= !in_.can_read();
  }
  if (is_sending() && !unwritten_) {
    out_.set_writer_sleeps(sleeps);
    may_sleep &= !out_.can_write();
  }
  return may_sleep;
}

}  // namespace winnow::comm
