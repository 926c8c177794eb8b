// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "kernels/exec/own_process.hpp"

namespace winnow::comm {

/// Keeps why a transport is unusable: its first failure, which every later call throws; or that
/// this is a child of a fork, whose messages would go among those of its parent. Threads that share
/// one take turns.
class FailureLatch {
 public:
  bool failed() const { return failed_; }
  /// Empty if nothing has failed.
  const Failure& first() const { return first_; }
  /// Throws the first failure.
  [[noreturn]] void fail(int code = 0) const { fail_by(first_, code); }
  /// Whether this is a child of a fork.
  bool forked() const { return process_.left(); }
  void expect_usable() const {
    WINNOW_EXPECTS(!forked(),
                   "a transport belongs to the process that made it; this is a child of a fork: "
                   "make another one here");
    if (failed()) fail();
  }
  /// Keeps `why`, unless there is an earlier failure.
  void keep(Failure why) noexcept {
    if (std::exchange(failed_, true)) return;
    first_ = std::move(why);
  }
  /// Runs `body`. Keeps an Error that it throws.
  template <class Error, class Body>
  auto guard(const Body& body) {
    try {
      return body();
    } catch (const Error& error) {
      keep(failure_of(error));
      throw;
    }
  }

 private:
  kernels::OwnProcess process_;
  bool failed_ = false;
  Failure first_;
};

}  // namespace winnow::comm
