// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <string>
#include <winnow/error.hpp>

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

}  // namespace winnow::comm
