// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>
#include <winnow/exec.hpp>

#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::tests {

/// What lies in the memory of exec.place, when all that is enqueued there is done.
inline std::vector<float> on_host(const Exec& exec, std::span<const float> there) {
  std::vector<float> here(there.size());
  kernels::read(exec, std::as_writable_bytes(std::span(here)), std::as_bytes(there));
  return here;
}

/// Copies to there, and waits.
inline void bring(const Exec& exec, std::span<float> there, std::span<const float> here) {
  kernels::copy(exec, std::as_writable_bytes(there), std::as_bytes(here));
  kernels::wait(exec);
}

}  // namespace winnow::tests
