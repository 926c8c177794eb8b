// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>
#include <winnow/reduce_op.hpp>
#include <winnow/transport.hpp>

#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

/// How a collective of dense elements runs.
struct Collective {
  Transport& world;
  const Exec& exec;
  Deadline deadline;
  std::uint64_t ring;  ///< use the ring from this many bytes on, even if there is a native
                       ///< collective
  /// On a device, the sum need only be ready for what is enqueued next.
  bool stream_ordered = false;
};

/// Transport::all_reduce, or its ring if the native collective ignores deadlines or is slower.
inline void all_reduce(const Collective& collective, const Elements& elements, ReduceOp op) {
  Transport& world = collective.world;
  const bool by_ring = elements.bytes().size() >= collective.ring;
  if (by_ring && world.native_all_reduce()) {
    world.Transport::all_reduce(collective.exec, elements, op, collective.deadline);
  } else {
    world.all_reduce(collective.exec, elements, op, collective.deadline);
  }
  if (!kernels::reading_waits(collective.exec) || collective.stream_ordered) return;
  world.wait(world.start(collective.exec), collective.deadline);
}

}  // namespace winnow::comm
