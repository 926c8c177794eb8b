// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/note_channel.hpp"

#include <cstring>
#include <span>

namespace winnow::comm {
namespace {

constexpr std::uint32_t kVersion = 3;  // of hellos, notes and messages

/// The text of a hello, as it lies in memory.
struct Hello {
  std::uint32_t version = kVersion;
  std::array<std::byte, 16> number{};
};
static_assert(sizeof(Hello) == 20);

template <class Value>
std::string_view as_text(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

/// The bytes that a proof covers, as they lie in memory.
struct NoteChannel::Proved {
  std::array<char, 8> label{'n', 'o', 't', 'e', ' ', 'o', 'f', ' '};
  Number connected{}, accepted{};  // both ends'
  std::uint64_t position = 0;      // among the notes of the end that sends
  std::uint32_t end = 0;           // that sends
  NoteKind kind{};
  Digest text{};  // of the note's
};

NoteChannel::NoteChannel(Socket socket, End end, const Credentials& credentials,
                         std::size_t most_bytes)
    : connection_(std::move(socket)),
      reader_(sizeof(Digest) + most_bytes),
      credentials_(credentials),
      end_(end) {
  random_bytes(mine_);
}

bool NoteChannel::greet() {
  return send_hello();
}

bool NoteChannel::send_hello() {
  return send_note(connection_, NoteKind::hello, as_text(Hello{.number = mine_}));
}

bool NoteChannel::send(NoteKind kind, std::string_view text, Deadline deadline) noexcept {
  const Proved proved = next_of(end_, kind);
  ++sent_;
  return send_proved(proved, text, deadline);
}

void NoteChannel::refuse(std::string_view why) noexcept {
  (void)send_proved({.kind = NoteKind::refusal}, why, Deadline::after({}));
}

bool NoteChannel::send_proved(const Proved& proved, std::string_view text,
                              Deadline deadline) noexcept {
  try {
    const Digest proof = proof_of(proved, text);
    return send_note(connection_, proved.kind, std::string(as_text(proof)).append(text), deadline);
  } catch (...) {  // no memory
    return false;
  }
}

void NoteChannel::dismiss() noexcept {
  (void)send_note(connection_, NoteKind::refusal, {});
}

Credentials NoteChannel::derive(std::string_view purpose) const {
  const Proved numbers = next_of(end_, {});
  return credentials_.derive(
      std::string(purpose).append(as_text(numbers.connected)).append(as_text(numbers.accepted)));
}

NoteReader::Outcome NoteChannel::read() {
  if (is_strangers()) return NoteReader::Outcome::ended;
  if (!has_met_) {
    const NoteReader::Outcome outcome = reader_.read(connection_);
    if (outcome != NoteReader::Outcome::complete) return outcome;
    const bool is_refusal = end_ == End::accepted && reader_.kind() == NoteKind::refusal;
    if (is_refusal && is_proved({.kind = NoteKind::refusal})) return outcome;
    if (!meet()) return NoteReader::Outcome::ended;
  }
  const NoteReader::Outcome outcome = reader_.read(connection_);
  if (outcome != NoteReader::Outcome::complete) return outcome;
  if (!is_proved(next_of(end_ == End::connected ? End::accepted : End::connected, reader_.kind())))
    return fail("another job, of another number of ranks or with another secret, meets there");
  ++received_;
  return outcome;
}

/// Takes the other end's hello.
bool NoteChannel::meet() {
  Hello hello;
  const bool is_hello = reader_.kind() == NoteKind::hello && reader_.text().size() == sizeof hello;
  if (is_hello) std::memcpy(&hello, reader_.text().data(), sizeof hello);
  if (!is_hello || hello.version != kVersion) {
    (void)fail(is_hello ? "another version of Winnow is there" : "what is there is not Winnow");
    return false;
  }
  theirs_ = hello.number;
  has_met_ = true;
  if (end_ == End::accepted && !send_hello()) {
    (void)fail("it takes no hello");
    return false;
  }
  return true;
}

/// The proof of the next note of an end.
NoteChannel::Proved NoteChannel::next_of(End end, NoteKind kind) const {
  const bool is_connected = end_ == End::connected;
  return {.connected = is_connected ? mine_ : theirs_,
          .accepted = is_connected ? theirs_ : mine_,
          .position = end == end_ ? sent_ : received_,
          .end = static_cast<std::uint32_t>(end) + 1,
          .kind = kind};
}

Digest NoteChannel::proof_of(Proved proved, std::string_view text) const {
  proved.text = credentials_.digest(std::as_bytes(std::span(text)));
  return credentials_.prove(std::as_bytes(std::span(&proved, 1)));
}

/// Whether the note that was read begins with a proof of this and the rest of it.
bool NoteChannel::is_proved(const Proved& proved) const {
  const std::string_view all = reader_.text();
  if (all.size() < sizeof(Digest)) return false;
  return equal(proof_of(proved, text()), std::as_bytes(std::span(all.substr(0, sizeof(Digest)))));
}

NoteReader::Outcome NoteChannel::fail(std::string problem) {
  problem_ = std::move(problem);
  return NoteReader::Outcome::ended;
}

}  // namespace winnow::comm
