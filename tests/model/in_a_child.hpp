// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>

namespace winnow::tests {

/// Returns whether `works` returns true in its own process. Crashing, throwing or returning false
/// is failure: a kernel without a barrier may write anywhere.
inline bool works_in_a_child(const std::function<bool()>& works) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int nowhere = ::open("/dev/null", O_WRONLY);  // for a sanitizer's report of a crash
    if (nowhere >= 0) ::dup2(nowhere, STDERR_FILENO);
    bool worked = false;
    try {
      worked = works();
    } catch (const std::exception&) {
      worked = false;
    }
    ::_exit(worked ? 0 : 1);
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace winnow::tests
