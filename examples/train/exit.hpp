// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace train {

/// Ends the program on every rank with `status`. Only rank 0 prints what(): to stdout if status is
/// 0 (help), else to stderr. All ranks throw it together.
class Exit : public std::runtime_error {
 public:
  Exit(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const noexcept { return status_; }

 private:
  int status_;
};

inline constexpr int kUsageStatus = 2;    ///< the command line or the text is wrong
inline constexpr int kFailureStatus = 1;  ///< anything else

}  // namespace train
