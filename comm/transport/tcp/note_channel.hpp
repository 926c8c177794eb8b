// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "comm/transport/credentials.hpp"
#include "comm/transport/tcp/note.hpp"

namespace winnow::comm {

/// Notes over a connection that anyone may have made.
///
/// Each end first sends a `hello` with a random number; who accepted the connection sends its own
/// when the other's has come. Every later note begins with a proof, by the credentials of the job,
/// of both numbers, the end that sends, how many notes it has sent, and the note's kind and text.
/// So nobody without the credentials makes, changes, repeats or returns a note. Notes without a
/// good proof end the channel; to the caller that is a stranger's connection.
///
/// One thread at a time may call send(), and another one the rest.
class NoteChannel {
 public:
  enum class End : std::uint8_t { connected, accepted };

  NoteChannel() = default;
  /// `socket` does not block. `most_bytes`: of a text; longer ones end the channel.
  NoteChannel(Socket socket, End end, const Credentials& credentials, std::size_t most_bytes);

  bool is_open() const { return connection_.is_open(); }
  const Socket& socket() const { return connection_.socket(); }
  /// For TLS, between two notes.
  Connection& connection() { return connection_; }
  /// For what follows the notes, which read no byte beyond them. The channel is then closed.
  Connection release() { return std::exchange(connection_, Connection()); }
  void close() { connection_.close(); }

  /// For the end that connected, once it is: sends its hello. False if the connection takes none.
  bool greet();
  /// Whether both hellos have come, so that notes can be sent.
  bool has_met() const { return has_met_; }
  /// As send_note. Not before has_met().
  bool send(NoteKind kind, std::string_view text, Deadline deadline = Deadline::after({})) noexcept;
  /// For the end that connected, instead of greet(): a refusal for an end that may not have come to
  /// it yet, and a last note. Its proof does without the other end's number, so whoever records it
  /// can repeat it, to an end of the same credentials.
  void refuse(std::string_view why) noexcept;
  /// Refuses the other end, whose proof is none, without a reason.
  void dismiss() noexcept;

  /// Credentials that both ends of this connection have for another purpose, once they have met.
  Credentials derive(std::string_view purpose) const;

  /// Reads what has come. `complete` is a note with a good proof: kind() and text() hold until the
  /// next read.
  NoteReader::Outcome read();
  NoteKind kind() const { return reader_.kind(); }
  std::string_view text() const { return reader_.text().substr(sizeof(Digest)); }
  /// Why the channel has ended.
  std::string problem() const { return problem_.empty() ? reader_.problem() : problem_; }
  /// Whether it ended since a note came without a good proof.
  bool is_strangers() const { return !problem_.empty(); }

 private:
  using Number = std::array<std::byte, 16>;
  struct Proved;
  bool send_hello();
  bool send_proved(const Proved& proved, std::string_view text, Deadline deadline) noexcept;
  bool meet();
  Proved next_of(End end, NoteKind kind) const;
  Digest proof_of(Proved proved, std::string_view text) const;
  bool is_proved(const Proved& proved) const;
  NoteReader::Outcome fail(std::string problem);

  Connection connection_;
  NoteReader reader_{0};
  Credentials credentials_;
  End end_ = End::connected;
  bool has_met_ = false;
  Number mine_{}, theirs_{};
  std::uint64_t sent_ = 0, received_ = 0;  // notes with proofs
  std::string problem_;
};

}  // namespace winnow::comm
