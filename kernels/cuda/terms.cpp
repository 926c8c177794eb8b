// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/terms.hpp"

#include <algorithm>

#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::kernels::cuda {

/// Sets terms.placed. Kernels decode values as they go.
void place_terms(const Exec& exec, PlacedTerms& terms, std::uint64_t) {
  WINNOW_EXPECTS(exec.workspace != nullptr, "terms on their way to a device need Exec::workspace");
  const auto placed = scratch_of(exec).take<DeviceTerm>(terms.host.size());
  const Workspace::Scope scope(*exec.workspace);
  const auto list = exec.workspace->take<DeviceTerm>(terms.host.size());
  std::ranges::transform(terms.host, list.begin(), device_term);
  kernels::store(exec, std::as_writable_bytes(placed), std::as_bytes(list));
  terms.placed = placed.data();
}

}  // namespace winnow::kernels::cuda
