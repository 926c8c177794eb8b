// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <winnow/cxx20.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// Root of everything that Winnow throws. If nobody catches one, the program writes one line to
/// stderr before it aborts, "winnow: rank 2 on host7: usage error: " and what(). For that the first
/// Error installs a terminate handler, which then calls the one before it, unless that is the C++
/// library's own.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what);
  explicit Error(const char* what);
};

/// The caller's fault: a bad option, a bucket that differs between ranks, a wrong count.
/// The gradient and the residual are as they were before the call, unless ranks are in the middle
/// of different calls; see AllReducer.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// The cause of a failure between ranks.
enum class FailureKind : std::uint8_t {
  environment,  ///< a dead peer, a corrupt message, a system that refuses
  deadline,     ///< a wait that gave up
  usage,        ///< some rank's caller: ranks that make different calls
};

/// The environment's fault, between ranks: a dead peer, a passed deadline, a corrupt message.
/// `code` is the library's own error code, or 0. Transports throw it for failures of kind `usage`,
/// too; the call of an AllReducer that fails so throws UsageError.
class CommError : public Error {
 public:
  explicit CommError(const std::string& what, int code = 0,
                     FailureKind kind = FailureKind::environment)
      : Error(what), code_(code), kind_(kind) {}
  int code() const noexcept { return code_; }
  FailureKind kind() const noexcept { return kind_; }

 private:
  int code_;
  FailureKind kind_;
};

/// The CUDA runtime refused a call; `code` is its cudaError_t.
class CudaError : public Error {
 public:
  explicit CudaError(const std::string& what, int code = 0) : Error(what), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// Throws UsageError with this message.
[[noreturn]] inline void fail_usage(const std::string& message) {
  throw UsageError(message);
}

}  // namespace winnow

/// States a precondition; throws UsageError with `message` if it does not hold.
#define WINNOW_EXPECTS(condition, message)           \
  do {                                               \
    if (!(condition)) ::winnow::fail_usage(message); \
  } while (false)

#pragma GCC visibility pop
