// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>

#include "comm/call/call_memory.hpp"
#include "comm/call/call_queue.hpp"
#include "comm/call/device_calls.hpp"
#include "comm/call/health.hpp"
#include "comm/call/parameters.hpp"
#include "comm/call/plans.hpp"
#include "comm/call/request.hpp"
#include "comm/call/setup.hpp"
#include "comm/stats/book.hpp"
#include "compress/part.hpp"
#include "kernels/arithmetic/philox.hpp"

namespace winnow::comm {

/// The parts of an AllReducer that its calls use. One call at a time.
struct CallContext {
  const Setup& setup;
  Health& health;
  Parameters& parameters;
  DeviceCalls& device_calls;
  StatsBook& book;
  CallMemory& memory;
  Plans& plans;
  const CallQueue& queue;
};

/// One call, from gradients to sums.
class Call {
 public:
  Call(const CallContext& context, const Request& request);

  /// Makes the call. Returns its bucket. Throws UsageError if ranks ask for different things, and
  /// then nothing has changed; otherwise a failure is the AllReducer's, with the gradients in the
  /// residuals. Throws CudaError if the device has failed.
  const Bucket& run();

 private:
  void await_earlier();
  void begin_together() noexcept;
  void begin();
  compress::Header header_of() const;
  compress::Header header_of(const compress::Part& part, std::uint16_t number) const;
  kernels::RandomKey random_of(const compress::Part& part, std::uint16_t number) const;
  void read();
  void precondition();
  void reduce();
  void write();
  void measure();
  [[noreturn]] void fail(const std::exception& error);
  void add_hint(Failure& why) const noexcept;
  void restore(float fill);
  void read_again();

  const CallContext context_;
  const Request& request_;
  const Workspace::Scope scratch_, device_scratch_, pinned_scratch_;  // end with the call
  Planned planned_;
  std::uint64_t number_ = 0;   // of the call, once it has begun
  const bool stream_ordered_;  // the host waits for nothing but sizes
};

}  // namespace winnow::comm
