// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "comm/call/last_resort.hpp"
#include "comm/call/setup.hpp"
#include "comm/stats/log.hpp"
#include "comm/transport/failure.hpp"

namespace winnow::comm {

/// Whether an AllReducer can make calls. One that has failed in the middle of a call cannot: ranks
/// may differ from then on, and the transport may still use the buffers it was given.
class Health {
 public:
  Health(Setup& setup, DebugLog& log) : setup_(setup), log_(log) {}

  /// Throws CommError after a failure.
  void expect() const;
  bool broken() const { return broken_.has_value(); }

  /// Ends all calls, on all ranks, and throws what `why` says.
  [[noreturn]] void fail(Failure why);
  /// Throws a UsageError on which all ranks agree: the next call may be right.
  [[noreturn]] void refuse(const std::string& why) const { last_resort_.usage_error(why); }

 private:
  const LastResort last_resort_;
  Setup& setup_;
  DebugLog& log_;
  std::optional<Failure> broken_;
};

}  // namespace winnow::comm
