// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <string>
#include <winnow/error.hpp>

#include "comm/transport/failure_latch.hpp"

namespace winnow::comm {

/// Throws errors, also if there is no memory for their text: then one that was made before, since
/// copies of an exception share its text.
class LastResort {
 public:
  /// `why`: perhaps a usage_reason.
  [[noreturn]] void usage_error(const std::string& why) const {
    raise(usage_, [&] { return without_kind(why); });
  }
  [[noreturn]] void comm_error(const std::string& why) const {
    raise(comm_, [&] { return why; });
  }

 private:
  template <class Kind, class Text>
  [[noreturn]] static void raise(const Kind& made, const Text& text) {
    try {
      throw Kind(text());
    } catch (const std::bad_alloc&) {
      throw Kind(made);
    }
  }

  UsageError usage_{"no memory is left, neither for the call nor to say what is wrong with it"};
  CommError comm_{"no memory is left to say why calls are no longer possible"};
};

}  // namespace winnow::comm
