// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace winnow::comm {

/// The ports, `first` to `last`, at which a rank may listen; 0: the system chooses.
struct PortRange {
  int first = 0, last = 0;

  /// "FIRST-LAST", or nothing. Throws UsageError for anything else.
  static PortRange parse(std::string_view text);
};

}  // namespace winnow::comm
