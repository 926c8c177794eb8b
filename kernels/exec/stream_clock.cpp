// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/stream_clock.hpp"

namespace winnow::kernels {

constinit thread_local StreamClock* StreamClock::current = nullptr;
const double StreamClock::kUncounted = 0;

/// Gives up the call of this thread.
void StreamClock::drop() noexcept {
  current = nullptr;
  spare_.splice(spare_.end(), under_way_);
}

/// Ends the call of this thread. False if it has no times.
bool StreamClock::end(const Name& name) noexcept {
  mark(nullptr);
  if (failed_) return false;
  under_way_.front().name = name;
  ended_.splice(ended_.end(), under_way_);
  current = nullptr;
  return true;
}

void StreamClock::Stage::enter(const double* seconds) noexcept {
  clock_ = current;
  outer_ = clock_->stage_;
  clock_->mark(seconds);
}

void StreamClock::begin(const double* rest) noexcept {
  failed_ = false;
  try {
    if (spare_.empty()) spare_.emplace_back();
  } catch (...) {
    failed_ = true;
    return;
  }
  under_way_.splice(under_way_.end(), spare_, spare_.begin());
  under_way_.front().size = 0;
  current = this;
  mark(rest);
}

/// Where the device has failed, the call says so.
void StreamClock::mark(const double* stage) noexcept {
  stage_ = stage;
  if (under_way_.empty()) return;
  try {
    Record& record = under_way_.front();
    if (record.size == record.points.size()) record.points.emplace_back();
    Point& point = record.points[record.size];
    point.mark.set(exec_);
    point.stage = stage;
    ++record.size;
  } catch (...) {
    failed_ = true;
  }
}

}  // namespace winnow::kernels
