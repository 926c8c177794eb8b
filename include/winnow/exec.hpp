// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <winnow/workspace.hpp>

namespace winnow {

/// Where spans live and work runs: host memory and the CPU, or memory of the current device and
/// Exec::stream.
enum class Place { host, cuda };

/// Operations do their work if a condition holds, and nothing otherwise; on a device each kernel
/// looks when it runs. The words do not change while it runs.
struct Condition {
  /// In the memory of Exec::place; null: the condition holds.
  const std::uint32_t* words = nullptr;
  std::uint32_t count = 0;
  bool any = true;  ///< true: holds if any word is not 0; false: holds if all words are 0
};

/// How work runs. Every kernel and transport call takes one. A view; owns nothing.
struct Exec {
  Place place = Place::host;
  int threads = 1;                 ///< on the CPU; results never depend on it
  void* stream = nullptr;          ///< a cudaStream_t if place is cuda; otherwise null
  Workspace* workspace = nullptr;  ///< host scratch, for schedules' lists and for kernels that ask
                                   ///< for it; never device memory
  Workspace* device_workspace = nullptr;  ///< device scratch, if place is cuda
  Workspace* pinned_workspace = nullptr;  ///< page-locked host scratch, if place is cuda, for
                                          ///< copies that run while the host goes on
  Condition condition = {};               ///< of operations on elements
  class Launches;                         ///< Winnow's own
  Launches* launches = nullptr;           ///< if place is cuda, what lets pieces share launches
};

}  // namespace winnow
