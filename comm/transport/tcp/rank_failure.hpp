// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <winnow/error.hpp>

namespace winnow::comm {

/// Why a rank cannot meet the others: its own options or its own machine do not let it listen. All
/// ranks of the meeting throw it. It travels in the place of the rank's address.
struct RankFailure {
  enum class Kind : std::uint8_t { usage, comm };  ///< UsageError or CommError
  int rank = 0;
  Kind kind = Kind::usage;
  std::string text;
  int code = 0;  ///< of the CommError; 0 on other ranks

  static RankFailure of(int rank, const Error& error);
  /// One line: "winnow-tcp-failure;RANK;KIND;TEXT", with at most 1024 bytes of the text and without
  /// control characters.
  std::string line() const;
  /// Nothing if the line is none of a failure.
  static std::optional<RankFailure> parse(std::string_view line);
  /// Throws the error of this kind, which names the rank.
  [[noreturn]] void fail() const;
};

/// Calls `call`; puts the rank's number in front of the text of its error.
template <class Call>
auto named_by_rank(int rank, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    RankFailure::of(rank, error).fail();
  }
}

}  // namespace winnow::comm
