// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call_queue.hpp"

#include <utility>
#include <winnow/error.hpp>

namespace winnow::comm {

std::uint64_t CallQueue::submit(std::span<const Segment> segments, ReduceOp op) {
  const Lock lock(mutex_);
  calls_.extend();
  Call& call = calls_[calls_.end() - 1];
  call.segments.assign(segments.begin(), segments.end());
  call.op = op;
  call.error = nullptr;
  call.awaited = true;
  if (threaded_ && !thread_.joinable()) thread_ = std::thread([this] { work(); });
  issued_.notify_one();
  return calls_.end() - 1;
}

/// Runs call next_ outside the lock. Its slot may move meanwhile, its segments do not.
void CallQueue::run_next(Lock& lock) {
  const std::span<const Segment> segments = calls_[next_].segments;
  const ReduceOp op = calls_[next_].op;
  std::exception_ptr error;
  lock.unlock();
  try {
    run_(segments, op);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  calls_[next_++].error = std::move(error);
  done_.notify_all();
}

void CallQueue::work() {
  Lock lock(mutex_);
  for (;;) {
    issued_.wait(lock, [&] { return closing_ || next_ != calls_.end(); });
    if (next_ == calls_.end()) return;
    run_next(lock);
  }
}

void CallQueue::wait(std::uint64_t number) {
  Lock lock(mutex_);
  WINNOW_EXPECTS(number >= calls_.begin() && number < calls_.end() && calls_[number].awaited,
                 "a Work is waited for once");
  while (next_ <= number) {
    if (threaded_) {
      done_.wait(lock);
    } else {
      run_next(lock);
    }
  }
  calls_[number].awaited = false;
  const std::exception_ptr error = std::exchange(calls_[number].error, nullptr);
  while (!calls_.empty() && calls_.begin() < next_ && !calls_.front().awaited) calls_.pop();
  if (error) std::rethrow_exception(error);
}

bool CallQueue::test(std::uint64_t number) {
  Lock lock(mutex_);
  if (!threaded_ && next_ <= number) run_next(lock);
  return next_ > number;
}

bool CallQueue::idle() {
  const Lock lock(mutex_);
  return next_ == calls_.end();
}

void CallQueue::close() noexcept {
  {
    Lock lock(mutex_);
    closing_ = true;
    issued_.notify_one();
    while (!threaded_ && next_ != calls_.end()) run_next(lock);
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace winnow::comm
