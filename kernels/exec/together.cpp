// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/together.hpp"

#include <algorithm>

namespace winnow::kernels {

void Batch::add(Launch launch, std::span<const std::byte> task) {
  auto kind = std::ranges::find(kinds_, launch, &Kind::launch);
  if (kind == kinds_.end()) kind = kinds_.insert(kind, {launch, {}});
  kind->tasks.insert(kind->tasks.end(), task.begin(), task.end());
}

void Batch::close(const Exec& exec, bool dropped) {
  is_open_ = false;
  if (!dropped) {
    for (const Kind& kind : kinds_) {
      if (!kind.tasks.empty()) kind.launch(exec, kind.tasks);
    }
  }
  for (Kind& kind : kinds_) kind.tasks.clear();
}

}  // namespace winnow::kernels
