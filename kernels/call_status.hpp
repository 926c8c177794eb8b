// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <winnow/exec.hpp>

namespace winnow::kernels {

/// The state of a call that kernels consult while its work runs, in the memory of exec.place. All
/// but its number is zero at the beginning of a call.
struct CallStatus {
  std::uint64_t call = 0;     ///< its number, as in headers and random keys: also in each replay
  std::uint32_t spoiled = 0;  ///< 1: a message is poisoned or not sound, so none may be read
  std::uint32_t not_finite =
      0;                        ///< 1: some sum is not finite; kernels that sum raise it themselves
  std::uint32_t unsound = 0;    ///< ~ of the lowest number of a message that is not sound, or 0
  std::uint32_t too_large = 0;  ///< 1: some sum is finite, but its element cannot hold it
};

/// Conditions on a status: that messages may be read, that they may not, that one was not sound, so
/// that its indices may be anything, that the bucket must become NaN, and that it must not.
inline Condition sound(const CallStatus& status) {
  return {.words = &status.spoiled, .count = 1, .any = false};
}
inline Condition spoiled(const CallStatus& status) {
  return {.words = &status.spoiled, .count = 1, .any = true};
}
inline Condition unsound(const CallStatus& status) {
  return {.words = &status.unsound, .count = 1, .any = true};
}
inline Condition refused(const CallStatus& status) {
  return {.words = &status.spoiled, .count = 2, .any = true};
}
inline Condition accepted(const CallStatus& status) {
  return {.words = &status.spoiled, .count = 2, .any = false};
}

/// The outcome of calls, in memory that the host shares with exec.place: page-locked for a device,
/// which writes `done` last.
struct CallReport {
  std::uint64_t unsound_call;  ///< 1 + the number of the first call that met a message which is not
                               ///< sound
  std::uint32_t unsound;       ///< 1 + the lowest number of such a message in it
  std::uint32_t unused;
  std::uint64_t next;  ///< CallStatus::call of the call that comes
  std::uint64_t done;  ///< 1 + the highest number of a call whose work is done
};

/// How many calls of a bucket ended so, beside the report.
struct CallCounts {
  std::uint64_t refused = 0;  ///< the bucket became NaN
  std::uint64_t clipped = 0;  ///< not so, and CallStatus::too_large
};

/// The end of a call, and the words that record it.
struct CallEnd {
  CallStatus* status;    ///< becomes the next call's
  std::uint64_t number;  ///< of the call; those that are enqueued later have no lower ones, and a
                         ///< graph has the one it was captured with
  CallReport* report;    ///< zero before the first call
  CallCounts* counts;    ///< one of them grows by one if it applies
  bool counts_clipped = true;  ///< false: the host has counted this call
};
void end_call(const Exec& exec, const CallEnd& end);

}  // namespace winnow::kernels
