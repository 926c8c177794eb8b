// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/call_queue.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "kernels/exec/device_scope.hpp"

namespace winnow {
namespace comm {
namespace {

/// The queues of this process that have no thread of their own.
struct Threadless {
  std::mutex mutex;
  CallQueue* first = nullptr;
};

Threadless& threadless() {
  static Threadless queues;
  return queues;
}

/// The queue whose callback this thread runs.
thread_local const CallQueue* calling_back_of = nullptr;

}  // namespace

CallQueue::CallQueue(bool threaded, Run run, std::shared_ptr<CompletionTracker> completions,
                     int device)
    : threaded_(threaded),
      run_(std::move(run)),
      completions_(std::move(completions)),
      device_(device) {
  if (threaded_) return;
  const std::lock_guard held(threadless().mutex);
  next_queue_ = std::exchange(threadless().first, this);
}

CallQueue::~CallQueue() {
  close();
  if (threaded_ || forked()) return;
  const std::lock_guard held(threadless().mutex);
  CallQueue** link = &threadless().first;
  while (*link != this) link = &(*link)->next_queue_;
  *link = next_queue_;
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
  WINNOW_EXPECTS(calling_back_of != this,
                 "a callback of a call in flight must neither make calls of its AllReducer nor "
                 "wait for them");
}

void CallQueue::reserve(std::size_t segments) {
  const Lock held = lock();
  calls_.reserve(kInFlight);
  for (Call& call : calls_.slots()) {
    if (call.mark == nullptr) call.mark = std::make_unique<kernels::StreamMark>();
    if (!running_ || &call != &calls_[next_]) call.segments.reserve(segments);
  }
}

std::uint64_t CallQueue::allocations() {
  const Lock held = lock();
  return allocations_;
}

std::optional<std::uint64_t> CallQueue::submit(std::span<const Segment> segments, ReduceOp op) {
  expect_outside_callbacks();
  const Lock held = lock();
  try {
    if (calls_.end() - calls_.begin() == calls_.slots().size()) ++allocations_;
    Call& call = calls_.next();
    if (call.segments.capacity() < segments.size()) ++allocations_;
    call.segments.assign(segments.begin(), segments.end());
    call.op = op;
    call.caller = std::this_thread::get_id();
    if (call.mark == nullptr) call.mark = std::make_unique<kernels::StreamMark>();
    call.error = nullptr;
    call.awaited = true;
    if (threaded_ && !thread_.joinable()) thread_ = std::thread([this] { work(); });
  } catch (const std::exception&) {
    return {};  // the system has no memory or no thread left
  }
  calls_.extend();
  issued_.notify_one();
  return calls_.end() - 1;
}

bool CallQueue::has_calls_of(std::thread::id caller) {
  const Lock held(mutex_);
  for (std::uint64_t number = next_ + (running_ ? 1 : 0); number < calls_.end(); ++number) {
    if (calls_[number].caller == caller) return true;
  }
  return false;
}

bool CallQueue::holds_up_others() const {
  if (threaded_) return false;
  const std::lock_guard held(threadless().mutex);
  for (CallQueue* queue = threadless().first; queue != nullptr; queue = queue->next_queue_) {
    if (queue != this && queue->has_calls_of(std::this_thread::get_id())) return true;
  }
  return false;
}

/// Runs call next_ without the lock. Its slot may move meanwhile; its segments do not.
void CallQueue::run_next(Lock& lock) {
  const std::span<const Segment> segments = calls_[next_].segments;
  const ReduceOp op = calls_[next_].op;
  kernels::StreamMark& mark = *calls_[next_].mark;
  std::exception_ptr error;
  running_ = true;
  lock.unlock();
  try {
    run_(segments, op, mark);
  } catch (...) {
    error = std::current_exception();
  }
  const std::uint64_t ended = completions_ == nullptr ? 0 : completions_->ended();
  lock.lock();
  running_ = false;
  for (Callback& callback : callbacks_) {
    if (callback.number != next_) continue;
    callback.ended = ended;
    callback.error = error;
  }
  calls_[next_].ended = ended;
  calls_[next_].error = std::move(error);
  const std::uint64_t number = next_++;
  if (!calls_[number].awaited) let_go(number);
  done_.notify_all();
  if (!threaded_) run_callbacks(lock);
}

void CallQueue::work() {
  kernels::stay_on(device_);
  Lock lock(mutex_);
  for (;;) {
    run_callbacks(lock);
    if (next_ != calls_.end()) {
      run_next(lock);
    } else if (!callbacks_.empty()) {
      await_callback(lock);
    } else if (closing_) {
      return;
    } else {
      issued_.wait(lock, [&] { return closing_ || next_ != calls_.end() || !callbacks_.empty(); });
    }
  }
}

/// Whether a callback's call, which has run, is done. Its error then says how.
bool CallQueue::is_due(Callback& callback) const {
  if (completions_ == nullptr || callback.error) return true;
  try {
    if (!completions_->test(callback.ended)) return false;
    if (const auto why = completions_->failure()) fail_by(*why);
  } catch (const std::exception&) {
    callback.error = std::current_exception();
  }
  return true;
}

void CallQueue::run(Callback callback) const noexcept {
  const CallQueue* const before = std::exchange(calling_back_of, this);
  callback.run(std::move(callback.error));
  callback.run = nullptr;  // it may hold a Work, whose destructor must not wait here
  calling_back_of = before;
}

/// Runs the callbacks that are due, in order and without the lock.
void CallQueue::run_callbacks(Lock& lock) {
  if (calling_back_) return;
  while (!callbacks_.empty() && callbacks_.front().number < next_ && is_due(callbacks_.front())) {
    Callback next = std::move(callbacks_.front());
    callbacks_.erase(callbacks_.begin());
    calling_back_ = true;
    lock.unlock();
    run(std::move(next));
    lock.lock();
    calling_back_ = false;
    done_.notify_all();
  }
}

/// Waits for the device, where the first callback's call has run, until that is due or there is a
/// call to run.
void CallQueue::await_callback(Lock& lock) {
  constexpr std::chrono::microseconds kTurn{100};
  const std::uint64_t ended = callbacks_.front().ended;
  std::exception_ptr error;
  lock.unlock();
  try {
    completions_->wait(ended, [&] {
      Lock turn(mutex_);
      return issued_.wait_for(turn, kTurn, [&] { return next_ != calls_.end(); });
    });
  } catch (const Error& failed) {
    completions_->fail(failure_of(failed));
    error = std::current_exception();
  }
  lock.lock();
  if (!error) return;
  for (Callback& callback : callbacks_) {
    if (callback.number < next_ && !callback.error) callback.error = error;
  }
}

/// Every call has run.
void CallQueue::finish_callbacks(Lock& lock) {
  if (threaded_) {
    done_.wait(lock, [&] { return callbacks_.empty() && !calling_back_; });
    return;
  }
  for (run_callbacks(lock); !callbacks_.empty(); run_callbacks(lock)) await_callback(lock);
}

void CallQueue::on_complete(std::uint64_t number, Completion callback) {
  Lock held = lock();
  Callback added{.number = number, .run = std::move(callback)};
  const auto later = std::ranges::upper_bound(callbacks_, number, std::less(), &Callback::number);
  if (number < next_) {
    added.ended = calls_[number].ended;
    added.error = calls_[number].error;
    const bool in_order = later == callbacks_.begin() && !calling_back_;
    if (in_order && is_due(added)) {
      held.unlock();
      run(std::move(added));
      return;
    }
  }
  callbacks_.insert(later, std::move(added));
  issued_.notify_one();
}

/// A call that has run and that nobody will wait for.
void CallQueue::let_go(std::uint64_t number) {
  Call& call = calls_[number];
  call.awaited = false;
  const std::exception_ptr error = std::exchange(call.error, nullptr);
  if (error && !detached_error_) detached_error_ = error;
  while (!calls_.empty() && calls_.begin() < next_ && !calls_.front().awaited) calls_.pop();
}

void CallQueue::detach(std::uint64_t number) noexcept {
  if (forked()) return;
  const Lock held(mutex_);
  calls_[number].awaited = false;
  if (number < next_) let_go(number);
}

void CallQueue::drop(std::uint64_t number) noexcept {
  if (calling_back_of == this) {
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
  if (const auto error = std::exchange(detached_error_, nullptr)) std::rethrow_exception(error);
}

void CallQueue::run_up_to(std::uint64_t number, Lock& lock) {
  if (next_ <= number && calling_back_of == this) {
    calls_[number].awaited = false;  // the Work is empty after this
    expect_outside_callbacks();
  }
  while (next_ <= number) {
    if (threaded_) {
      done_.wait(lock);
    } else {
      run_next(lock);
    }
  }
}

std::uint64_t CallQueue::wait(std::uint64_t number) {
  Lock held = lock();
  WINNOW_EXPECTS(number >= calls_.begin() && number < calls_.end() && calls_[number].awaited,
                 "a Work is waited for once");
  run_up_to(number, held);
  const std::uint64_t ended = calls_[number].ended;
  calls_[number].awaited = false;
  const std::exception_ptr error = std::exchange(calls_[number].error, nullptr);
  let_go(number);
  if (error) std::rethrow_exception(error);
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
        calls_[number].mark->hold_up({.place = Place::cuda, .stream = stream});
      return;
    }
  }
  (void)wait(number);
}

bool CallQueue::test(std::uint64_t number) {
  Lock held = lock();
  if (!threaded_ && next_ <= number && calling_back_of != this) run_next(held);
  if (!threaded_) run_callbacks(held);
  return next_ > number && (completions_ == nullptr || completions_->test(calls_[number].ended));
}

bool CallQueue::idle() {
  expect_outside_callbacks();
  const Lock held = lock();
  return next_ == calls_.end();
}

void CallQueue::drain() {
  expect_outside_callbacks();
  Lock held = lock();
  if (next_ != calls_.end()) run_up_to(calls_.end() - 1, held);
  finish_callbacks(held);
}

void CallQueue::close() noexcept {
  {
    Lock lock(mutex_);
    closing_ = true;
    issued_.notify_one();
    if (!threaded_) {
      while (next_ != calls_.end()) run_next(lock);
      finish_callbacks(lock);
    }
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace comm

Work& Work::operator=(Work&& other) noexcept {
  const Work before(std::move(*this));  // its destructor waits
  queue_ = std::move(other.queue_);
  number_ = other.number_;
  return *this;
}

Work::~Work() {
  if (queue_ != nullptr) queue_->drop(number_);
}

void Work::on_complete(std::function<void(std::exception_ptr)> callback) {
  WINNOW_EXPECTS(callback != nullptr, "on_complete needs a function");
  if (queue_ == nullptr) {
    callback(nullptr);
  } else {
    queue_->on_complete(number_, std::move(callback));
  }
}

void Work::detach() noexcept {
  if (const auto queue = std::exchange(queue_, nullptr)) queue->detach(number_);
}

void Work::wait() {
  if (const auto queue = std::exchange(queue_, nullptr)) queue->finish(number_);
}

void Work::wait(void* stream) {
  if (queue_ == nullptr) return;
  try {
    queue_->order(number_, stream);
  } catch (...) {
    queue_ = nullptr;
    throw;
  }
}

bool Work::test() {
  return queue_ == nullptr || queue_->test(number_);
}

}  // namespace winnow
