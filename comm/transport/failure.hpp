// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <winnow/error.hpp>

#include "comm/transport/printable.hpp"

namespace winnow::comm {

/// Why a transport or a call failed. The code decides by the kind; the text is for people.
struct Failure {
  std::string text;
  FailureKind kind = FailureKind::environment;
};

/// Decodes a kind from the byte of another rank. Unknown bytes become `environment`.
constexpr FailureKind kind_of(std::uint8_t byte) noexcept {
  const bool known = byte <= static_cast<std::uint8_t>(FailureKind::usage);
  return known ? static_cast<FailureKind>(byte) : FailureKind::environment;
}

inline FailureKind kind_of(const std::exception& error) noexcept {
  if (dynamic_cast<const UsageError*>(&error) != nullptr) return FailureKind::usage;
  const auto* const comm = dynamic_cast<const CommError*>(&error);
  return comm == nullptr ? FailureKind::environment : comm->kind();
}

// Without memory for the text, these return one that is short enough not to allocate.

/// Copies the exception's message.
inline std::string text_of(const std::exception& error) noexcept {
  try {
    return error.what();
  } catch (...) {
    return "no memory left";
  }
}

inline Failure failure_of(const std::exception& error) noexcept {
  return {text_of(error), kind_of(error)};
}

/// The failure that a rank keeps after abort() was called on it.
inline Failure aborted_here(std::string_view reason, FailureKind kind) noexcept {
  try {
    return {"this rank aborted: " + std::string(reason), kind};
  } catch (...) {
    return {"aborted", kind};
  }
}

/// The failure that a rank keeps after its peer aborted, for the reason that the peer sent.
inline Failure aborted_by(int peer, std::string_view reason, FailureKind kind) {
  return {"rank " + std::to_string(peer) + " aborted: " + printable(reason), kind};
}

/// Prefixes the text with the rank.
inline Failure of_rank(int rank, const Failure& why) {
  return {"rank " + std::to_string(rank) + ": " + why.text, why.kind};
}

/// `when` completes the sentence "the deadline passed ...".
inline Failure missed_deadline(std::string_view when) {
  return {std::string("the deadline passed ").append(when), FailureKind::deadline};
}

/// Throws a CommError of this kind, as transports do.
[[noreturn]] inline void fail_by(const Failure& why, int code = 0) {
  throw CommError(why.text, code, why.kind);
}
[[noreturn]] inline void fail_at_deadline(std::string_view when) {
  fail_by(missed_deadline(when));
}

}  // namespace winnow::comm
