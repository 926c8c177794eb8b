// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/call_queue.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "kernels/exec/device_scope.hpp"

namespace winnow::comm {
namespace {

/// The queues of this process that have no thread of their own.
struct Threadless {
  std::mutex mutex;
  std::vector<CallQueue*> queues;
};

Threadless& threadless() {
  static Threadless& all = *new Threadless;  // AllReducers may end after all other objects
  return all;
}

}  // namespace

CallQueue::CallQueue(bool threaded, Run run, std::shared_ptr<CompletionTracker> completions,
                     int device)
    : threaded_(threaded),
      run_(std::move(run)),
      completions_(std::move(completions)),
      device_(device),
      callbacks_(completions_.get()) {
  if (threaded_) return;
  const std::lock_guard held(threadless().mutex);
  threadless().queues.push_back(this);
}

CallQueue::~CallQueue() {
  close();
  if (threaded_ || forked()) return;
  const std::lock_guard held(threadless().mutex);
  std::erase(threadless().queues, this);
}

/// In a child of a fork a thread that is not there may hold the mutex.
CallQueue::Lock CallQueue::lock() {
  WINNOW_EXPECTS(!forked(),
                 "an AllReducer belongs to the process that made it; this is a child of a fork: "
                 "make another one here");
  return Lock(mutex_);
}

/// Calls made there would run in another order on other ranks; a wait there would not end.
void CallQueue::expect_outside_callbacks() const {
  WINNOW_EXPECTS(!callbacks_.is_inside(),
                 "a callback of a call in flight must neither make calls of its AllReducer nor "
                 "wait for them");
}

void CallQueue::reserve(std::size_t segments) {
  const Lock held = lock();
  calls_.reserve(segments);
}

std::optional<std::uint64_t> CallQueue::submit(std::span<const Segment> segments, ReduceOp op) {
  expect_outside_callbacks();
  const Lock held = lock();
  try {
    calls_.prepare(segments, op);
    if (threaded_ && !thread_.joinable()) thread_ = std::thread([this] { work(); });
  } catch (const std::exception&) {
    return {};  // the system has no memory or no thread left
  }
  issued_.notify_one();
  return calls_.add();
}

bool CallQueue::has_calls_of(std::thread::id caller) {
  const Lock held(mutex_);
  return calls_.has_calls_of(caller);
}

bool CallQueue::blocks_others() const {
  if (threaded_) return false;
  const std::lock_guard held(threadless().mutex);
  return std::ranges::any_of(threadless().queues, [this](CallQueue* queue) {
    return queue != this && queue->has_calls_of(std::this_thread::get_id());
  });
}

/// Runs the next call without the lock. Its slot may move meanwhile; its segments do not.
void CallQueue::run_next(Lock& lock) {
  const std::uint64_t number = calls_.next();
  const CallInFlight& call = calls_.begin_next();
  const std::span<const Segment> segments = call.segments;
  const ReduceOp op = call.op;
  kernels::StreamMark& mark = *call.mark;
  std::exception_ptr error;
  lock.unlock();
  try {
    run_(segments, op, mark);
  } catch (...) {
    error = std::current_exception();
  }
  const std::uint64_t ended = completions_ == nullptr ? 0 : completions_->ended();
  lock.lock();
  callbacks_.finish_call(number, ended, error);
  calls_.finish_next(ended, error);
  done_.notify_all();
  if (!threaded_) run_callbacks(lock);
}

void CallQueue::run_up_to(std::uint64_t number, Lock& lock) {
  if (!calls_.has_run(number) && callbacks_.is_inside()) {
    calls_.detach(number);  // the Work is empty after this
    expect_outside_callbacks();
  }
  while (!calls_.has_run(number)) {
    if (threaded_) {
      done_.wait(lock);
    } else {
      run_next(lock);
    }
  }
}

void CallQueue::work() {
  kernels::stay_on(device_);
  Lock lock(mutex_);
  for (;;) {
    run_callbacks(lock);
    if (!calls_.all_ran()) {
      run_next(lock);
    } else if (!callbacks_.empty()) {
      await_callback(lock);
    } else if (closing_) {
      return;
    } else {
      issued_.wait(lock, [&] { return closing_ || !calls_.all_ran() || !callbacks_.empty(); });
    }
  }
}

void CallQueue::run_callbacks(Lock& lock) {
  if (callbacks_.run_due(calls_.next(), lock)) done_.notify_all();
}

/// Waits for the device until the first callback is due or there is a call to run.
void CallQueue::await_callback(Lock& lock) {
  const auto has_call = [this] {
    constexpr std::chrono::microseconds kTurn{100};
    Lock turn(mutex_);
    return issued_.wait_for(turn, kTurn, [this] { return !calls_.all_ran(); });
  };
  callbacks_.await_first(calls_.next(), has_call, lock);
}

/// Every call has run.
void CallQueue::finish_callbacks(Lock& lock) {
  if (threaded_) {
    done_.wait(lock, [&] { return callbacks_.all_ran(); });
    return;
  }
  for (run_callbacks(lock); !callbacks_.empty(); run_callbacks(lock)) await_callback(lock);
}

void CallQueue::on_complete(std::uint64_t number, Completion callback) {
  Lock held = lock();
  Callback added{.number = number, .run = std::move(callback)};
  const bool has_run = calls_.has_run(number);
  if (has_run) {
    added.ended = calls_[number].ended;
    added.error = calls_[number].error;
  }
  callbacks_.add(std::move(added), has_run, held);
  issued_.notify_one();
}

void CallQueue::detach(std::uint64_t number) noexcept {
  if (forked()) return;
  const Lock held(mutex_);
  calls_.detach(number);
}

void CallQueue::drop(std::uint64_t number) noexcept {
  if (callbacks_.is_inside()) {
    detach(number);
    return;
  }
  try {
    (void)wait(number);
  } catch (...) {
    // Nobody asked. A CommError stays in the AllReducer; a UsageError changed nothing.
  }
}

void CallQueue::rethrow_detached() {
  const Lock held = lock();
  if (const auto error = calls_.take_detached_error()) std::rethrow_exception(error);
}

std::uint64_t CallQueue::wait(std::uint64_t number) {
  Lock held = lock();
  calls_.expect_awaited(number);
  run_up_to(number, held);
  const std::uint64_t ended = calls_[number].ended;
  if (const auto error = calls_.take_error(number)) std::rethrow_exception(error);
  return ended;
}

void CallQueue::finish(std::uint64_t number) {
  const std::uint64_t ended = wait(number);
  if (completions_ == nullptr) return;
  try {
    completions_->wait(ended);
  } catch (const Error& error) {
    completions_->fail(failure_of(error));
    throw;
  }
  if (!threaded_) {
    Lock held = lock();
    run_callbacks(held);
  }
  if (const auto why = completions_->failure()) fail_by(*why);
}

void CallQueue::order(std::uint64_t number, void* stream) {
  {
    Lock held = lock();
    run_up_to(number, held);
    if (calls_[number].error == nullptr) {
      if (completions_ != nullptr)
        calls_[number].mark->make_wait({.place = Place::cuda, .stream = stream});
      return;
    }
  }
  (void)wait(number);
}

bool CallQueue::test(std::uint64_t number) {
  Lock held = lock();
  if (!threaded_ && !calls_.has_run(number) && !callbacks_.is_inside()) run_next(held);
  if (!threaded_) run_callbacks(held);
  return calls_.has_run(number) &&
         (completions_ == nullptr || completions_->test(calls_[number].ended));
}

bool CallQueue::idle() {
  expect_outside_callbacks();
  const Lock held = lock();
  return calls_.all_ran();
}

void CallQueue::drain() {
  expect_outside_callbacks();
  Lock held = lock();
  if (!calls_.all_ran()) run_up_to(calls_.end() - 1, held);
  finish_callbacks(held);
}

void CallQueue::close() noexcept {
  {
    Lock lock(mutex_);
    closing_ = true;
    issued_.notify_one();
    if (!threaded_) {
      while (!calls_.all_ran()) run_next(lock);
      finish_callbacks(lock);
    }
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace winnow::comm
