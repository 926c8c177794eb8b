// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/call_status.hpp"

#include <algorithm>

namespace winnow::kernels::cpu {

void end_call(const Exec&, const CallEnd& end) {
  const CallStatus status = *end.status;
  *end.status = {.call = status.call + 1};
  CallReport& report = *end.report;
  if (status.spoiled != 0 || status.not_finite != 0) {
    ++end.counts->refused;
  } else if (status.too_large != 0 && end.counts_clipped) {
    ++end.counts->clipped;
  }
  if (status.unsound != 0 && report.unsound_call == 0) {
    report.unsound = ~status.unsound + 1;
    report.unsound_call = end.number + 1;
  }
  report.next = status.call + 1;
  report.done = std::max(report.done, end.number + 1);
}

}  // namespace winnow::kernels::cpu
