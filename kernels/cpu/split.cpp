// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/split.hpp"

#include <algorithm>

#include "kernels/cpu/parallel.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::kernels::cpu {

/// An owner for each entry, and a place for each owner.
std::size_t split_scratch(const Exec&, const Partition& partition, std::size_t k) {
  return (k + partition.owners()) * sizeof(std::uint32_t);
}

void split_by_owner(const Exec& exec, const SplitJob& job) {
  const auto& [list, partition, local, value, begin, self] = job;
  const std::size_t k = list.index.size();
  const std::uint32_t owners = partition.owners();
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const auto scratch = workspace.take<std::uint32_t>(k + owners);
  const auto owner = scratch.first(k), next = scratch.subspan(k);
  std::ranges::fill(begin, 0U);
  for (std::size_t j = 0; j < k; ++j) {
    owner[j] = partition.owner_of_unit(list.index[j] / Partition::kUnit);
    ++begin[owner[j] + 1];
  }
  for (std::uint32_t o = 0; o < owners; ++o) {
    next[o] = begin[o];
    begin[o + 1] += begin[o];
  }
  for (std::size_t j = 0; j < k; ++j) {
    const std::uint32_t place = next[owner[j]]++;
    local[place] = static_cast<std::uint32_t>(partition.local(list.index[j]));
    value[place] = list.value[j];
  }
}

void positions_of(const Exec& exec, const Partition& partition, std::uint32_t owner,
                  std::span<const std::uint32_t> local, std::span<std::uint32_t> index) {
  for_each_range(exec.threads, index.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t j = begin; j < end; ++j) {
      index[j] = static_cast<std::uint32_t>(partition.position(owner, local[j]));
    }
  });
}

}  // namespace winnow::kernels::cpu
