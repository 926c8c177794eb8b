// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <winnow/tcp.hpp>

namespace winnow::comm {

// TcpOptions::from_environment() in two steps: a rank that has the secret can prove to the others
// that the rest of its environment is wrong.

/// Reads the secret from WINNOW_TCP_SECRET, or from the file that WINNOW_TCP_SECRET_FILE names;
/// empty if neither is set. Throws UsageError.
std::string secret_of_environment();
/// Sets all but the secret. Throws UsageError; what it has read before is then set.
void read_environment(TcpOptions& options);

}  // namespace winnow::comm
