// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>
#include <winnow/exec.hpp>

namespace winnow {

/// Collects the launches of a device, which take microseconds each, so that those of one kind of
/// work become one.
class Exec::Launches {
 public:
  /// Launches tasks of one kind, which lie behind each other.
  using Launch = void (*)(const Exec& exec, std::span<const std::byte> tasks);

  /// Whether work of this Exec is collected.
  bool takes(const Exec& exec) const {
    return is_open_ && exec.condition.words == condition_.words &&
           exec.condition.any == condition_.any;
  }
  /// Keeps the bytes of a task.
  void add(Launch launch, std::span<const std::byte> task);

  void open(const Exec& exec) { is_open_ = true, condition_ = exec.condition; }
  /// Launches what there is, unless it is `dropped`.
  void close(const Exec& exec, bool dropped) {
    is_open_ = false;
    if (is_empty_) return;
    is_empty_ = true;
    end(exec, dropped);
  }

 private:
  struct Kind {
    Launch launch;
    std::vector<std::byte> tasks;  // empty of a kind that was there before, and keeps its memory
  };
  void end(const Exec& exec, bool dropped);

  std::vector<Kind> kinds_;
  Condition condition_;
  bool is_open_ = false, is_empty_ = true;
};

namespace kernels {

/// Calls work(), whose operations on elements under `exec` may run in any order: they are of
/// different pieces of memory. On a device with an Exec::launches those of one kind become one
/// launch for every few hundred pieces, when work returns.
template <class Work>
void together(const Exec& exec, const Work& work) {
  if (exec.launches == nullptr) {
    work();
    return;
  }
  exec.launches->open(exec);
  try {
    work();
  } catch (...) {
    exec.launches->close(exec, true);
    throw;
  }
  exec.launches->close(exec, false);
}

}  // namespace kernels

}  // namespace winnow
