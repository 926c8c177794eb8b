// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <vector>
#include <winnow/allreducer.hpp>

#include "comm/transport/fifo.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

/// A call in flight.
struct CallInFlight {
  std::vector<Segment> segments;
  ReduceOp op = ReduceOp::sum;
  std::thread::id caller;
  std::unique_ptr<kernels::StreamMark> mark;
  std::uint64_t ended = 0;   // calls on the device, including this one, once it has run
  std::exception_ptr error;  // likewise
  bool awaited = true;       // nobody has asked for its error yet
};

/// The calls in flight, numbered in the order in which they were added and run. A call leaves once
/// it has run and nobody will ask for its error. Keeps its memory. The caller locks.
class CallList {
 public:
  static constexpr std::size_t kInFlight = 32;

  std::uint64_t next() const { return next_; }        ///< number of the first call that has not run
  std::uint64_t end() const { return calls_.end(); }  ///< number of the next call to be added
  bool all_ran() const { return next_ == calls_.end(); }
  bool has_run(std::uint64_t number) const { return number < next_; }
  CallInFlight& operator[](std::uint64_t number) { return calls_[number]; }

  /// Makes room for kInFlight calls of that many segments each. The call that runs keeps its
  /// segments where they are.
  void reserve(std::size_t segments);
  /// How often more calls or segments than reserved took memory.
  std::uint64_t allocations() const { return allocations_; }
  /// Fills the next call, which is not in the list before `add`. Throws if there is no memory.
  void prepare(std::span<const Segment> segments, ReduceOp op);
  std::uint64_t add();
  /// Whether a thread has added calls that neither have run nor run now.
  bool has_calls_of(std::thread::id caller) const;

  /// Marks call next() as the one that runs, until `finish_next`.
  CallInFlight& begin_next();
  void finish_next(std::uint64_t ended, const std::exception_ptr& error);

  /// Throws UsageError unless somebody may wait for this call.
  void expect_awaited(std::uint64_t number) const;
  /// Nobody will wait for this call. Keeps its error, if it has run, as one of a detached call.
  void detach(std::uint64_t number);
  /// Returns the error of a call that has run, and lets the call go.
  std::exception_ptr take_error(std::uint64_t number);
  /// Returns the first error of detached calls, once.
  std::exception_ptr take_detached_error();

 private:
  void pop_finished();

  Fifo<CallInFlight> calls_;
  std::uint64_t next_ = 0;
  bool running_ = false;
  std::exception_ptr detached_error_;
  std::uint64_t allocations_ = 0;
};

}  // namespace winnow::comm
