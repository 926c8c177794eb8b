// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <vector>

namespace winnow::kernels {

/// Holds memory that nobody may free, so that leak checkers still find it.
inline void keep_for_ever(const void* memory) noexcept {
  static std::mutex mutex;
  try {
    static auto* const kept = new std::vector<const void*>;
    const std::lock_guard lock(mutex);
    kept->push_back(memory);
  } catch (...) {
    // Without memory for the note the memory itself stays all the same.
  }
}

}  // namespace winnow::kernels
