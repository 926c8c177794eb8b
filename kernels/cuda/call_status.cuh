// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/call_status.hpp"
#include "kernels/cuda/simt.hpp"

namespace winnow::kernels::cuda {

/// Runs in one thread.
struct EndCall {
  CallEnd task;

  WINNOW_DEVICE void run() const {
    if (simt::thread() != 0) return;
    const CallStatus status = *task.status;
    *task.status = {.call = status.call + 1};
    CallReport& report = *task.report;
    CallCounts& counts = *task.counts;
    if ((status.spoiled | status.not_finite) != 0) {
      simt::publish_to_host(&counts.refused, counts.refused + 1);
    } else if (status.too_large != 0 && task.counts_clipped) {
      simt::publish_to_host(&counts.clipped, counts.clipped + 1);
    }
    if (status.unsound != 0 && report.unsound_call == 0) {
      simt::publish_to_host(&report.unsound, ~status.unsound + 1);
      simt::fence_host();
      simt::publish_to_host(&report.unsound_call, task.number + 1);
    }
    simt::publish_to_host(&report.next, status.call + 1);
    simt::fence_host();
    // A graph that is replayed ends a call of an old number.
    if (report.done <= task.number) simt::publish_to_host(&report.done, task.number + 1);
  }
};

}  // namespace winnow::kernels::cuda
