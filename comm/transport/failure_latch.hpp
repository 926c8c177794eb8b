// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <winnow/error.hpp>

#include "kernels/exec/own_process.hpp"

namespace winnow::comm {

/// Keeps why a transport is unusable: its first failure, which every later call throws; or that
/// this is a child of a fork, whose messages would go among those of its parent. Threads that share
/// one take turns.
class FailureLatch {
 public:
  bool failed() const { return !why_.empty(); }
  /// Empty if nothing has failed.
  const std::string& why() const { return why_; }
  /// Whether this is a child of a fork.
  bool forked() const { return process_.left(); }
  void expect_usable() const {
    WINNOW_EXPECTS(!forked(),
                   "a transport belongs to the process that made it; this is a child of a fork: "
                   "make another one here");
    if (failed()) throw CommError(why_);
  }
  /// Keeps `why`, which must not be empty, unless there is an earlier failure.
  void keep(std::string why) noexcept {
    if (!failed()) why_ = std::move(why);
  }

 private:
  kernels::OwnProcess process_;
  std::string why_;
};

/// Begins the reason of a failure that a caller is to blame for. Only its text reaches the peers,
/// so these words tell them, too, what kind of error it is.
inline constexpr std::string_view kUsage = "usage error: ";

inline std::string usage_reason(std::string_view what) {
  return std::string(kUsage).append(what);
}
inline bool is_usage_reason(std::string_view failure) {
  return failure.find(kUsage) != std::string_view::npos;
}

/// A reason for a UsageError, which says what kind it is by its type.
inline std::string without_kind(std::string reason) {
  for (std::size_t at = 0; (at = reason.find(kUsage, at)) != std::string::npos;) {
    reason.erase(at, kUsage.size());
  }
  return reason;
}

/// In the reason of every failure at a deadline.
inline constexpr std::string_view kDeadlinePassed = "the deadline passed";

inline bool is_deadline_reason(std::string_view failure) {
  return failure.find(kDeadlinePassed) != std::string_view::npos;
}

// If there is no memory for a text, these return one that is short enough not to allocate.

/// What an exception says.
inline std::string text_of(const std::exception& error) noexcept {
  try {
    return error.what();
  } catch (...) {
    return "no memory left";
  }
}

/// Why an exception says that a call failed.
inline std::string reason_of(const std::exception& error) noexcept {
  const bool told = is_usage_reason(error.what());
  if (!told && dynamic_cast<const UsageError*>(&error) == nullptr) return text_of(error);
  try {
    return told ? error.what() : usage_reason(error.what());
  } catch (...) {
    return std::string(kUsage);
  }
}

/// The failure of a rank that was told to abort.
inline std::string abort_text(std::string_view reason) noexcept {
  try {
    return "this rank aborted: " + std::string(reason);
  } catch (...) {
    return "aborted";  // short enough not to allocate
  }
}

}  // namespace winnow::comm
