// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/transport.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/tcp/connection.hpp"

namespace winnow::comm {

/// A note that a rank sends beside messages: a kind and a short text.
enum class NoteKind : std::uint32_t {
  hello = 1,  ///< a random number (NoteChannel)
  greeting,   ///< who connects, and what for
  welcome,    ///< the answer to a greeting: who was connected to; and to a join
  chosen,     ///< this connection is the one to use
  join,       ///< a rank's address, for the rank that collects them
  list,       ///< all addresses, a line each
  refusal,    ///< why the job cannot begin: ends with a note_of it
  abort,      ///< why a rank aborted: a note_of it
  leave,      ///< a rank's transport was destroyed
  question,   ///< at a deadline: for whom does the other rank wait
  answer,     ///< its number, or -1: for nobody
  failure,    ///< which rank cannot meet the others, and why: a line of a RankFailure
};

/// Encodes a failure for a note: one byte for its kind, then its text.
std::string note_of(std::string_view why, FailureKind kind) noexcept;
inline std::string note_of(const Failure& why) noexcept {
  return note_of(why.text, why.kind);
}
inline std::string note_of(const std::exception& error) noexcept {
  return note_of(failure_of(error));
}
/// Decodes note_of. Trusts no byte.
Failure failure_in(std::string_view note);

/// Sends a note. False if it has failed, or does not take all of
/// the note by the deadline; without one: at once, as a new connection does with a short note.
bool send_note(const Connection& connection, NoteKind kind, std::string_view text,
               Deadline deadline = Deadline::after({})) noexcept;

/// Peeks at the next note on a bare socket that does not block.
enum class NoteAhead : std::uint8_t { none, abort, other, ended };
NoteAhead look_ahead(const Socket& socket) noexcept;

/// Reads notes; trusts no byte.
class NoteReader {
 public:
  /// The longest text; a longer one ends the connection.
  explicit NoteReader(std::size_t most_bytes);

  enum class Outcome : std::uint8_t {
    pending,   ///< the rest has not arrived
    complete,  ///< kind() and text() hold until the next read
    ended,     ///< the connection ended, or carries something else; problem() says
  };
  /// Reads no byte beyond the note's end.
  Outcome read(const Connection& connection);
  NoteKind kind() const;
  std::string_view text() const;
  std::string problem() const;

 private:
  bool fill(const Connection& connection, std::size_t bytes);

  std::size_t most_bytes_;
  std::vector<char> bytes_;
  std::size_t filled_ = 0;
  bool complete_ = false;
  enum class End : std::uint8_t { none, closed, foreign, failed };
  End end_ = End::none;
  std::string error_;  // if it failed
};

}  // namespace winnow::comm
