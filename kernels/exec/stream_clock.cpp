// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/stream_clock.hpp"

namespace winnow::kernels {

constinit thread_local StreamClock* StreamClock::current = nullptr;
const double StreamClock::kUncounted = 0;

StreamClock::Call::Call(StreamClock* clock, const double& rest) : clock_(clock) {
  if (clock_ != nullptr) clock_->begin(&rest);
}

StreamClock::Call::~Call() {
  if (clock_ == nullptr) return;
  current = nullptr;
  clock_->spare_.splice(clock_->spare_.end(), clock_->under_way_);
}

void StreamClock::Call::end(const Name& name) {
  if (clock_ == nullptr) return;
  clock_->mark(nullptr);
  if (clock_->failed_) return;
  clock_->under_way_.front().name = name;
  clock_->ended_.splice(clock_->ended_.end(), clock_->under_way_);
  current = nullptr;
  clock_ = nullptr;
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
