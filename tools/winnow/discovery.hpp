// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <winnow/topology.hpp>

namespace tool {

/// Calls `tell` on rank 0 with the topology of the ranks that mpirun or srun started; a single rank
/// if neither did, or if the library was built without MPI.
void discover_and(const std::function<void(const winnow::Topology&)>& tell);

}  // namespace tool
