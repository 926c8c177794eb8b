// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/together.hpp"

#include <algorithm>

namespace winnow {

void Exec::Launches::add(Launch launch, std::span<const std::byte> task) {
  auto kind = std::ranges::find(kinds_, launch, &Kind::launch);
  if (kind == kinds_.end()) kind = kinds_.insert(kind, {launch, {}});
  is_empty_ = false;
  kind->tasks.insert(kind->tasks.end(), task.begin(), task.end());
}

void Exec::Launches::end(const Exec& exec, bool dropped) {
  const auto drop = [this] {
    for (Kind& kind : kinds_) kind.tasks.clear();
  };
  try {
    for (const Kind& kind : kinds_) {
      if (!dropped && !kind.tasks.empty()) kind.launch(exec, kind.tasks);
    }
  } catch (...) {
    drop();  // else the next launches would launch them once more
    throw;
  }
  drop();
}

}  // namespace winnow
