// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace winnow::comm {

/// The ports, `first` to `last`, at which a rank may listen; 0: the system chooses.
struct PortRange {
  int first = 0, last = 0;
  int left_out = 0;  ///< one between them at which it may not; 0: none

  /// "FIRST-LAST", or nothing. Throws UsageError for anything else.
  static PortRange parse(std::string_view text);
  /// The others, where ranks meet at `port`. Throws UsageError if there are none.
  PortRange without(int port) const;
};

}  // namespace winnow::comm
