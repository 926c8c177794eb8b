// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

namespace winnow::kernels::cuda {

// What a call finds out about itself while its work runs, for the kernels behind it and for the
// host when it asks. Work is enqueued on exec.stream, which must belong to the current device; it
// needs no scratch, does not synchronise or allocate, so a CUDA graph can capture it. CudaError
// where a launch is refused, UsageError in a build without CUDA.

/// In device memory. All zero where a call begins.
struct Verdict {
  std::uint32_t spoiled;     ///< 1: a message is poisoned or not sound, so none may be read
  std::uint32_t not_finite;  ///< 1: some sum is not finite; kernels that sum raise it themselves
  std::uint32_t unsound;     ///< ~ of the lowest number of a message that is not sound, or 0
};

/// That messages may be read, as far as the verdict goes; and that the bucket is to become NaN.
inline Condition sound(const Verdict& verdict) {
  return {.words = &verdict.spoiled, .count = 1, .any = false};
}
inline Condition refused(const Verdict& verdict) {
  return {.words = &verdict.spoiled, .count = 2, .any = true};
}

/// What the host reads, in page-locked memory. The device writes `done` last.
struct CallReport {
  std::uint64_t unsound_call;  ///< 1 + the number of the first call that met a message which is not
                               ///< sound
  std::uint32_t unsound;       ///< 1 + the lowest number of such a message in it
  std::uint32_t unused;
  std::uint64_t done;  ///< 1 + the highest number of a call whose work is done
};

/// How a call ends, and where that is noted.
struct CallEnd {
  Verdict* verdict;        ///< becomes zero, for the next call
  std::uint64_t number;    ///< of the call; those that are enqueued later have no lower ones
  CallReport* report;      ///< in page-locked memory, zero before the first call
  std::uint64_t* refused;  ///< there too: grows by one where the bucket became NaN
};
void end_call(const Exec& exec, const CallEnd& end);

}  // namespace winnow::kernels::cuda
