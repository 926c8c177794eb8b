// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/split.hpp"

namespace winnow::kernels::reference {

std::size_t split_scratch(const Exec&, const Partition&, std::size_t) {
  return 0;
}

void split_by_owner(const Exec&, const SplitJob& job) {
  std::uint32_t at = 0;
  for (std::uint32_t owner = 0; owner < job.partition.owners(); ++owner) {
    job.begin[owner] = at;
    for (std::size_t j = 0; j < job.list.index.size(); ++j) {
      const std::uint32_t position = job.list.index[j];
      if (job.partition.owner_of_unit(position / Partition::kUnit) != owner) continue;
      job.local[at] = static_cast<std::uint32_t>(job.partition.local(position));
      job.value[at] = job.list.value[j];
      ++at;
    }
  }
  job.begin.back() = at;
}

void positions_of(const Exec&, const Partition& partition, std::uint32_t owner,
                  std::span<const std::uint32_t> local, std::span<std::uint32_t> index) {
  for (std::size_t j = 0; j < index.size(); ++j) {
    index[j] = static_cast<std::uint32_t>(partition.position(owner, local[j]));
  }
}

}  // namespace winnow::kernels::reference
