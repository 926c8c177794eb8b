// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/note.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "comm/transport/printable.hpp"

namespace winnow::comm {
namespace {

constexpr std::uint64_t kMagic = 0x65746f6e'574e4e57;  // "WNNWnote", little-endian

/// A note's first bytes; the text follows.
struct Prefix {
  std::uint64_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint32_t bytes = 0;
};
static_assert(sizeof(Prefix) == 16);

}  // namespace

std::string note_of(std::string_view why, FailureKind kind) noexcept {
  std::string note(1, static_cast<char>(kind));
  try {
    note += why;
  } catch (const std::bad_alloc&) {
    // The kind alone needs no memory.
  }
  return note;
}

Failure failure_in(std::string_view note) {
  if (note.empty()) return {};
  return {printable(note.substr(1)), kind_of(static_cast<std::uint8_t>(note.front()))};
}

bool send_note(const Connection& connection, NoteKind kind, std::string_view text,
               Deadline deadline) noexcept {
  Prefix prefix{.kind = static_cast<std::uint32_t>(kind),
                .bytes = static_cast<std::uint32_t>(text.size())};
  std::array<iovec, 2> parts{iovec{&prefix, sizeof prefix},
                             iovec{const_cast<char*>(text.data()), text.size()}};
  for (;;) {
    const ::ssize_t sent = connection.write(parts);
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return false;
    auto rest = static_cast<std::size_t>(std::max<::ssize_t>(0, sent));
    for (iovec& part : parts) {
      const std::size_t gone = std::min(rest, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + gone;
      part.iov_len -= gone;
      rest -= gone;
    }
    if (parts[0].iov_len + parts[1].iov_len == 0) return true;
    if (deadline.passed()) return false;
    pollfd until_taken{.fd = connection.socket().get(), .events = POLLOUT, .revents = 0};
    ::poll(&until_taken, 1, 1);
  }
}

NoteAhead look_ahead(const Socket& socket) noexcept {
  Prefix prefix;
  const ::ssize_t got = ::recv(socket.get(), &prefix, sizeof prefix, MSG_DONTWAIT | MSG_PEEK);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? NoteAhead::none : NoteAhead::ended;
  if (got == 0) return NoteAhead::ended;
  const bool is_abort =
      got == sizeof prefix && static_cast<NoteKind>(prefix.kind) == NoteKind::abort;
  return is_abort ? NoteAhead::abort : NoteAhead::other;
}

NoteReader::NoteReader(std::size_t most_bytes) : most_bytes_(most_bytes) {
  constexpr std::size_t kShort = 1024;  // enough to read most notes without allocating later
  bytes_.reserve(sizeof(Prefix) + std::min(most_bytes, kShort));
}

NoteReader::Outcome NoteReader::read(const Connection& connection) {
  if (complete_) filled_ = 0;
  complete_ = false;
  if (filled_ < sizeof(Prefix) && !fill(connection, sizeof(Prefix)))
    return end_ == End::none ? Outcome::pending : Outcome::ended;
  Prefix prefix;
  std::memcpy(&prefix, bytes_.data(), sizeof prefix);
  if (prefix.magic != kMagic || prefix.bytes > most_bytes_) {
    end_ = End::foreign;
    return Outcome::ended;
  }
  if (!fill(connection, sizeof(Prefix) + prefix.bytes))
    return end_ == End::none ? Outcome::pending : Outcome::ended;
  complete_ = true;
  return Outcome::complete;
}

// Reads until the note has `bytes` bytes. False if there are none now, or no more.
bool NoteReader::fill(const Connection& connection, std::size_t bytes) {
  if (bytes_.size() < bytes) bytes_.resize(bytes);
  while (filled_ < bytes) {
    const iovec rest{bytes_.data() + filled_, bytes - filled_};
    const ::ssize_t got = connection.read({&rest, 1});
    if (got > 0) {
      filled_ += static_cast<std::size_t>(got);
    } else if (got == 0) {
      end_ = End::closed;
      return false;
    } else if (errno != EINTR) {
      if (errno == EAGAIN) return false;
      error_ = connection.problem_of(errno);
      end_ = End::failed;
      return false;
    }
  }
  return true;
}

std::string NoteReader::problem() const {
  switch (end_) {
    case End::none:
      return "";
    case End::closed:
      return "the connection was closed";
    case End::foreign:
      return "what arrives is not Winnow's";
    case End::failed:
      return error_;
  }
  return "";
}

NoteKind NoteReader::kind() const {
  Prefix prefix;
  std::memcpy(&prefix, bytes_.data(), sizeof prefix);
  return static_cast<NoteKind>(prefix.kind);
}

std::string_view NoteReader::text() const {
  return {bytes_.data() + sizeof(Prefix), filled_ - sizeof(Prefix)};
}

}  // namespace winnow::comm
