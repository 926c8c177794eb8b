// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace train {

/// Ends the program on every rank with `status`; rank 0 alone prints what(): to stdout where status
/// is 0 (help was asked for), else to stderr. Thrown by all ranks together.
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
