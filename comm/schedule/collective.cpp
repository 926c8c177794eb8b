// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/collective.hpp"

#include "kernels/exec/place_memory.hpp"

namespace winnow::comm {

void all_reduce(const Collective& collective, const Elements& elements, ReduceOp op) {
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
