// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "comm/reducer/call_queue.hpp"
#include "winnow/allreducer.hpp"

namespace winnow {

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
