// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <winnow/allreducer.hpp>
#include <winnow/error.hpp>

#include "comm/call/call_queue.hpp"

namespace winnow {

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
