// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <winnow/allreducer.hpp>

#include "comm/call/call.hpp"
#include "comm/call/call_memory.hpp"
#include "comm/call/call_queue.hpp"
#include "comm/call/device_calls.hpp"
#include "comm/call/health.hpp"
#include "comm/call/parameters.hpp"
#include "comm/call/plans.hpp"
#include "comm/call/request.hpp"
#include "comm/call/setup.hpp"
#include "comm/schedule/rows.hpp"
#include "comm/stats/book.hpp"
#include "comm/stats/log.hpp"

namespace winnow {

struct AllReducer::Impl {
  /// Meets the other ranks. `refusal`: see AllReducer::refuse, or empty.
  static Impl* make(const std::shared_ptr<Transport>& transport, const Options& given,
                    const Exec& where, std::string refusal = {});
  /// Before the ranks meet, once the options of `setup` are checked.
  explicit Impl(const std::shared_ptr<comm::Setup>& made);
  /// Ends all calls, and writes the statistics that Options::stats asks for.
  void close() noexcept;

  void all_reduce(std::span<const Segment> segments, ReduceOp op, kernels::StreamMark* mark);
  /// Makes a call now, on this thread. Sets `mark`, if not null, behind its work on a device.
  void make_call(const comm::Request& request, kernels::StreamMark* mark);

  void expect_idle(const char* caller) const;
  void synchronize();
  /// Runs `work` on the state between calls.
  template <class Work>
  auto with_state(const Work& work);

  const std::shared_ptr<comm::Setup> setup;  // outlives what uses it
  comm::StatsBook book;
  comm::CallMemory memory;
  comm::RowMemory row_sums;
  comm::DebugLog log;
  comm::Health health;
  comm::Parameters parameters;
  comm::DeviceCalls device_calls;
  const std::shared_ptr<Work::Queue> queue;
  comm::Plans plans;
};

}  // namespace winnow
