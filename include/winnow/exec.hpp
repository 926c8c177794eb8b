// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/workspace.hpp>

namespace winnow {

/// Where spans live and which body of a kernel runs. `reference` is the plain specification on the
/// CPU; `cpu` is the SIMD body; `cuda` expects device pointers and runs on Exec::stream.
enum class Place { cpu, reference, cuda };

/// How work runs. Every kernel and every transport call takes one; it is a view and owns nothing.
struct Exec {
  Place place = Place::cpu;
  int threads = 1;                 ///< OpenMP threads on the CPU; results never depend on it
  void* stream = nullptr;          ///< a cudaStream_t where place is cuda, unused elsewhere
  Workspace* workspace = nullptr;  ///< scratch of the host, for kernels that say so and for the
                                   ///< lists that schedules keep; never of device memory
  Workspace* device_workspace = nullptr;  ///< scratch of device memory, where place is cuda
};

}  // namespace winnow
