// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/reducer/call_queue.hpp"

#include <exception>
#include <utility>
#include <winnow/error.hpp>

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
  calls_[next_].ended = ended;
  calls_[next_++].error = std::move(error);
  done_.notify_all();
}

void CallQueue::work() {
  kernels::stay_on(device_);
  Lock lock(mutex_);
  for (;;) {
    issued_.wait(lock, [&] { return closing_ || next_ != calls_.end(); });
    if (next_ == calls_.end()) return;
    run_next(lock);
  }
}

void CallQueue::run_up_to(std::uint64_t number, Lock& lock) {
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
  while (!calls_.empty() && calls_.begin() < next_ && !calls_.front().awaited) calls_.pop();
  if (error) std::rethrow_exception(error);
  return ended;
}

void CallQueue::finish(std::uint64_t number) {
  const std::uint64_t ended = wait(number);
  if (completions_ == nullptr) return;
  try {
    completions_->wait(ended);
  } catch (const Error& error) {
    completions_->fail(error.what());
    throw;
  }
  if (const std::string why = completions_->failure(); !why.empty()) throw CommError(why);
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
  if (!threaded_ && next_ <= number) run_next(held);
  return next_ > number && (completions_ == nullptr || completions_->test(calls_[number].ended));
}

bool CallQueue::idle() {
  const Lock held = lock();
  return next_ == calls_.end();
}

void CallQueue::drain() {
  Lock held = lock();
  if (next_ != calls_.end()) run_up_to(calls_.end() - 1, held);
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

}  // namespace comm

Work& Work::operator=(Work&& other) noexcept {
  const Work before(std::move(*this));  // its destructor waits
  queue_ = std::move(other.queue_);
  number_ = other.number_;
  return *this;
}

Work::~Work() {
  try {
    if (queue_ != nullptr) (void)queue_->wait(number_);
  } catch (...) {
    // Nobody asked. A CommError stays in the AllReducer; a UsageError changed nothing.
  }
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
