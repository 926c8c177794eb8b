// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"

namespace winnow::comm {

/// Why a rank cannot meet the others: its own options or its own machine do not let it listen. All
/// ranks of the meeting throw it. It travels in the place of the rank's address.
struct RankFailure {
  int rank = 0;
  Failure why;
  int code = 0;  ///< of the CommError; 0 on other ranks

  static RankFailure of(int rank, const Error& error);
  /// One line: "winnow-tcp-failure;RANK;KIND;TEXT", with at most 1024 bytes of the text and without
  /// control characters. KIND is "usage" or "comm".
  std::string line() const;
  /// Nothing if the line is none of a failure.
  static std::optional<RankFailure> parse(std::string_view line);
  /// Throws the error of this kind, UsageError or CommError, which names the rank.
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
