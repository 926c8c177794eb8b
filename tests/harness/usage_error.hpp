// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <winnow/error.hpp>

namespace winnow::tests {

/// The text of the UsageError that `call` throws, or "" if it throws none.
template <class Call>
std::string usage_error(const Call& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

}  // namespace winnow::tests
