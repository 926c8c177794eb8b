// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/exec.hpp>

#include "kernels/exec/place_memory.hpp"

namespace winnow::kernels {

/// Times the stages of calls by the clock of a device: a mark in the stream wherever a stage begins
/// or ends, looked at when the stream has passed the call. The time between two marks counts for
/// the innermost stage there; so no moment is counted twice, and every moment of a call is counted.
/// The host waits for nothing, and a call is the same without its times: what goes wrong with them
/// is never told. Keeps as many marks as calls have been under way at once.
class StreamClock {
 public:
  /// For exec.stream of the current device.
  explicit StreamClock(const Exec& exec) : exec_(exec) {}
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  /// Names a call: how many began before it, and its bucket.
  struct Name {
    std::uint64_t number = 0;
    std::size_t bucket = 0;
  };

  /// A call of this thread, while it lives. One at a time.
  class Call {
   public:
    /// Its moments within no stage count for `rest`. Nothing is timed if clock is null.
    Call(StreamClock* clock, const double& rest) : clock_(clock) {
      if (clock_ != nullptr) clock_->begin(&rest);
    }
    /// A call that has not ended has no times.
    ~Call() {
      if (clock_ != nullptr) clock_->drop();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    void end(const Name& name) {
      if (clock_ != nullptr && clock_->end(name)) clock_ = nullptr;
    }

   private:
    StreamClock* clock_;
  };

  /// A stage of the call of this thread, if it has one that is timed. Stages of a call nest.
  class Stage {
   public:
    /// `seconds` names it. Null: none of its own.
    explicit Stage(const double* seconds) noexcept {
      if (current != nullptr && seconds != nullptr) enter(seconds);
    }
    ~Stage() {
      if (clock_ != nullptr) clock_->mark(outer_);
    }
    Stage(const Stage&) = delete;
    Stage& operator=(const Stage&) = delete;

   private:
    void enter(const double* seconds) noexcept;

    StreamClock* clock_ = nullptr;
    const double* outer_ = nullptr;
  };

  /// Names what is of no stage, and of no account.
  static const double kUncounted;

  /// The calls that the stream has passed, in their order, each once: add(name, stage, seconds) for
  /// each stretch of a stage. Not in a capture of the stream. Calls that the device does not report
  /// have no times.
  template <class Add>
  void read(const Add& add) noexcept {
    try {
      while (!ended_.empty() && ended_.front().passed()) {
        Record& record = ended_.front();
        for (std::size_t i = 1; i < record.size; ++i) {
          const Point &begin = record.points[i - 1], &end = record.points[i];
          add(record.name, begin.stage, end.mark.seconds_since(begin.mark));
        }
        spare_.splice(spare_.end(), ended_, ended_.begin());
      }
    } catch (const CudaError&) {
      spare_.splice(spare_.end(), ended_);
    }
  }

 private:
  struct Point {
    TimedMark mark;
    const double* stage = nullptr;  // of what follows
  };
  struct Record {
    Name name;
    std::vector<Point> points;  // longer where the marks of an earlier call are kept
    std::size_t size = 0;

    bool passed() const { return points[size - 1].mark.passed(); }
  };

  void begin(const double* rest) noexcept;
  bool end(const Name& name) noexcept;
  void drop() noexcept;
  void mark(const double* stage) noexcept;

  static constinit thread_local StreamClock* current;

  const Exec& exec_;
  std::list<Record> spare_, under_way_, ended_;  // records move from list to list
  const double* stage_ = nullptr;
  bool failed_ = false;  // to set a mark, in the call under way
};

}  // namespace winnow::kernels
