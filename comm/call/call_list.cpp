// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/call_list.hpp"

#include <utility>
#include <winnow/error.hpp>

namespace winnow::comm {

void CallList::reserve(std::size_t segments) {
  calls_.reserve(kInFlight);
  for (CallInFlight& call : calls_.slots()) {
    if (call.mark == nullptr) call.mark = std::make_unique<kernels::StreamMark>();
    if (!running_ || &call != &calls_[next_]) call.segments.reserve(segments);
  }
}

void CallList::prepare(std::span<const Segment> segments, ReduceOp op) {
  if (calls_.end() - calls_.begin() == calls_.slots().size()) ++allocations_;
  CallInFlight& call = calls_.next();
  if (call.segments.capacity() < segments.size()) ++allocations_;
  call.segments.assign(segments.begin(), segments.end());
  call.op = op;
  call.caller = std::this_thread::get_id();
  if (call.mark == nullptr) call.mark = std::make_unique<kernels::StreamMark>();
  call.error = nullptr;
  call.awaited = true;
}

std::uint64_t CallList::add() {
  calls_.extend();
  return calls_.end() - 1;
}

bool CallList::has_calls_of(std::thread::id caller) const {
  for (std::uint64_t number = next_ + (running_ ? 1 : 0); number < calls_.end(); ++number)
    if (calls_[number].caller == caller) return true;
  return false;
}

CallInFlight& CallList::begin_next() {
  running_ = true;
  return calls_[next_];
}

void CallList::finish_next(std::uint64_t ended, const std::exception_ptr& error) {
  running_ = false;
  CallInFlight& call = calls_[next_++];
  call.ended = ended;
  call.error = error;
  if (!call.awaited) detach(next_ - 1);
}

void CallList::expect_awaited(std::uint64_t number) const {
  WINNOW_EXPECTS(number >= calls_.begin() && number < calls_.end() && calls_[number].awaited,
                 "a Work is waited for once");
}

void CallList::detach(std::uint64_t number) {
  calls_[number].awaited = false;
  if (!has_run(number)) return;
  const std::exception_ptr error = std::exchange(calls_[number].error, nullptr);
  if (error && !detached_error_) detached_error_ = error;
  pop_finished();
}

std::exception_ptr CallList::take_error(std::uint64_t number) {
  calls_[number].awaited = false;
  std::exception_ptr error = std::exchange(calls_[number].error, nullptr);
  pop_finished();
  return error;
}

std::exception_ptr CallList::take_detached_error() {
  return std::exchange(detached_error_, nullptr);
}

void CallList::pop_finished() {
  while (!calls_.empty() && has_run(calls_.begin()) && !calls_.front().awaited) calls_.pop();
}

}  // namespace winnow::comm
