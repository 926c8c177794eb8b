// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "kernels/cuda/stream.hpp"
#include "tests/model/cuda_model.hpp"

namespace winnow::tests {

/// Until it opens, holds back all work that follows it on a stream of the model.
class Gate {
 public:
  explicit Gate(kernels::cuda::StreamRef stream) {
    const Lock lock(model_mutex);
    work_ = enqueue_elsewhere(lock, stream.get());
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    Lock lock(model_mutex);
    if (std::exchange(opened_, true)) return;
    model_changed.wait(lock, [&] { return is_first(lock, *work_); });
    finish(lock, *work_);
  }
  /// Opens in a moment, while this thread does something else.
  std::jthread open_soon() {
    return std::jthread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      open();
    });
  }

 private:
  std::shared_ptr<StreamWork> work_;
  bool opened_ = false;
};

}  // namespace winnow::tests
