// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/message_header.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/verdict.hpp"

namespace winnow::kernels::cuda {

struct JudgeTask {
  const std::uint32_t* words;
  std::uint32_t count;
  Verdict* verdict;
};

/// Of one block.
struct JudgeMessages {
  using Task = JudgeTask;
  struct Shared {
    std::uint32_t last;  ///< of the numbers, counted from the last message down
  };

  WINNOW_DEVICE static void run(Shared& shared, const Task& task) {
    if (simt::thread() == 0) shared.last = 0;
    simt::barrier();
    bool spoiled = false;
    for (std::uint32_t i = simt::thread(); i < task.count; i += simt::kThreads) {
      if (task.words[i] != 0) spoiled = true;
      if ((task.words[i] & kUnsound) != 0) simt::atomic_max(&shared.last, task.count - i);
    }
    spoiled = simt::barrier_or(spoiled);
    if (simt::thread() != 0 || !spoiled) return;
    task.verdict->spoiled = 1;
    if (shared.last != 0 && task.verdict->unsound == 0) {
      task.verdict->unsound = task.count - shared.last + 1;
    }
  }
};

/// Of one block.
struct JudgeSums {
  using Task = JudgeTask;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    bool refused = false;
    for (std::uint32_t i = simt::thread(); i < task.count; i += simt::kThreads) {
      if (task.words[i] != 0) refused = true;
    }
    refused = simt::barrier_or(refused);
    if (simt::thread() == 0 && refused) task.verdict->not_finite = 1;
  }
};

/// Of one thread.
struct EndCall {
  using Task = CallEnd;
  struct Shared {};

  WINNOW_DEVICE static void run(Shared&, const Task& task) {
    if (simt::thread() != 0) return;
    const Verdict verdict = *task.verdict;
    *task.verdict = {};
    CallReport& report = *task.report;
    if ((verdict.spoiled | verdict.not_finite) != 0) simt::publish(task.refused, *task.refused + 1);
    if (verdict.unsound != 0 && report.unsound_call == 0) {
      simt::publish(&report.unsound, verdict.unsound);
      simt::fence_host();
      simt::publish(&report.unsound_call, task.number + 1);
    }
    simt::fence_host();
    // A graph that is replayed ends a call of an old number.
    if (report.done <= task.number) simt::publish(&report.done, task.number + 1);
  }
};

}  // namespace winnow::kernels::cuda
