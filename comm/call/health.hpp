// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <optional>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/call/setup.hpp"
#include "comm/stats/log.hpp"
#include "comm/transport/failure.hpp"

namespace winnow::comm {

/// Throws errors, also if there is no memory for their text: then one that was made before, since
/// copies of an exception share its text.
class LastResort {
 public:
  [[noreturn]] void usage_error(const std::string& why) const {
    try {
      fail_usage(why);
    } catch (const std::bad_alloc&) {
      throw UsageError(usage_);
    }
  }
  [[noreturn]] void comm_error(const Failure& why) const {
    try {
      fail_by(why);
    } catch (const std::bad_alloc&) {
      throw CommError(comm_);
    }
  }

 private:
  UsageError usage_{"no memory is left, neither for the call nor to say what is wrong with it"};
  CommError comm_{"no memory is left to say why calls are no longer possible"};
};

/// Whether an AllReducer can make calls. One that has failed in the middle of a call cannot: ranks
/// may differ from then on, and the transport may still use the buffers it was given.
class Health {
 public:
  Health(Setup& setup, DebugLog& log) : setup_(setup), log_(log) {}

  /// Throws CommError after a failure.
  void expect() const {
    if (broken_) last_resort_.comm_error(*broken_);
  }
  bool broken() const { return broken_.has_value(); }

  /// Ends all calls, on all ranks, and throws what `why` says.
  [[noreturn]] void fail(Failure why) {
    setup_.transport().abort(why.text, why.kind);
    broken_ = std::move(why);
    setup_.context.abandon();
    log_.broken(*broken_);
    if (broken_->kind == FailureKind::usage) last_resort_.usage_error(broken_->text);
    last_resort_.comm_error(*broken_);
  }
  /// Throws a UsageError on which all ranks agree: the next call may be right.
  [[noreturn]] void refuse(const std::string& why) const { last_resort_.usage_error(why); }

 private:
  const LastResort last_resort_;
  Setup& setup_;
  DebugLog& log_;
  std::optional<Failure> broken_;
};

}  // namespace winnow::comm
