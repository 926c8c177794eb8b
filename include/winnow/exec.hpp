// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <winnow/workspace.hpp>

namespace winnow {

/// Where spans live and which body of a kernel runs. `reference` is the plain specification on the
/// CPU; `cpu` is the SIMD body; `cuda` expects device pointers and runs on Exec::stream.
enum class Place { cpu, reference, cuda };

/// What only the device knows, and by which kernels there do their work or nothing. The words do
/// not change while a kernel runs that looks at them.
struct Condition {
  const std::uint32_t* words = nullptr;  ///< in the memory of Exec::place; without any it holds
  std::uint32_t count = 0;
  bool any = true;  ///< holds where one of them is not 0; else where all of them are
};

/// How work runs. Every kernel and every transport call takes one; it is a view and owns nothing.
struct Exec {
  Place place = Place::cpu;
  int threads = 1;                 ///< OpenMP threads on the CPU; results never depend on it
  void* stream = nullptr;          ///< a cudaStream_t where place is cuda, unused elsewhere
  Workspace* workspace = nullptr;  ///< scratch of the host, for kernels that say so and for the
                                   ///< lists that schedules keep; never of device memory
  Workspace* device_workspace = nullptr;  ///< scratch of device memory, where place is cuda
  Workspace* pinned_workspace = nullptr;  ///< there also page-locked scratch of the host, for what
                                          ///< is copied while the host goes on
  Condition condition = {};               ///< of kernels on the stream
};

}  // namespace winnow
