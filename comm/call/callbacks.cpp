// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/callbacks.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"

namespace winnow::comm {

constinit thread_local const Callbacks* Callbacks::inside = nullptr;

void Callbacks::add(Callback callback, bool has_run, Lock& lock) {
  const auto later =
      std::ranges::upper_bound(waiting_, callback.number, std::less(), &Callback::number);
  if (has_run && later == waiting_.begin() && !running_ && is_due(callback)) {
    lock.unlock();
    run(std::move(callback));
    lock.lock();
    return;
  }
  waiting_.insert(later, std::move(callback));
}

void Callbacks::finish_call(std::uint64_t number, std::uint64_t ended,
                            const std::exception_ptr& error) {
  for (Callback& callback : waiting_) {
    if (callback.number != number) continue;
    callback.ended = ended;
    callback.error = error;
  }
}

/// Whether a callback's call, which has run, is done. Its error then says how.
bool Callbacks::is_due(Callback& callback) const {
  if (completions_ == nullptr || callback.error) return true;
  try {
    if (!completions_->test(callback.ended)) return false;
    if (const auto why = completions_->failure()) fail_by(*why);
  } catch (const std::exception&) {
    callback.error = std::current_exception();
  }
  return true;
}

void Callbacks::run(Callback callback) const noexcept {
  const Callbacks* const before = std::exchange(inside, this);
  callback.run(std::move(callback.error));
  callback.run = nullptr;  // it may hold a Work, whose destructor must not wait here
  inside = before;
}

bool Callbacks::run_due(std::uint64_t next, Lock& lock) {
  if (running_) return false;
  bool any = false;
  for (; !waiting_.empty() && waiting_.front().number < next && is_due(waiting_.front());
       any = true) {
    Callback due = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    running_ = true;
    lock.unlock();
    run(std::move(due));
    lock.lock();
    running_ = false;
  }
  return any;
}

void Callbacks::await_first(std::uint64_t next, const std::function<bool()>& stop, Lock& lock) {
  const std::uint64_t ended = waiting_.front().ended;
  std::exception_ptr error;
  lock.unlock();
  try {
    completions_->wait(ended, stop);
  } catch (const Error& failed) {
    completions_->fail(failure_of(failed));
    error = std::current_exception();
  }
  lock.lock();
  if (!error) return;
  for (Callback& callback : waiting_)
    if (callback.number < next && !callback.error) callback.error = error;
}

}  // namespace winnow::comm
