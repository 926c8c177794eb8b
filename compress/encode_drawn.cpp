// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Elements at drawn positions on their way into messages: error feedback in one pass, after which
// residuals hold acc, and then acc is taken out of them.
#include <optional>

#include "compress/lists.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/index_coding.hpp"
#include "kernels/owned.hpp"

namespace winnow::compress {

void Compressor::encode(const Exec& exec, const Draws& draws, const EncodeJob& job,
                        EncodeResult& out) const {
  const Part& part = job.part;
  const std::uint32_t owners = part.partition.owners();
  const auto k_of = [&](std::uint32_t owner) {
    return part.owner_k.empty() ? part.k : part.owner_k[owner];
  };
  std::uint64_t sent = 0;
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    if (owner != part.self) sent += k_of(owner);
  }
  Workspace& scratch = kernels::scratch_of(exec);
  Owned& owned = out.owned;
  owned.results = scratch.take<kernels::SelectResult>(part.pieces.size());
  const std::uint64_t own_k = part.self == Part::kNobody ? 0 : k_of(part.self);
  const auto [own_room, acc] = scratch.take<std::uint32_t, float>(own_k);
  const auto not_finite = kernels::take_zeros<std::uint32_t>(exec, 2);
  std::optional<kernels::ScratchScope> scope;
  if (!out.leaves_views()) scope.emplace(exec);  // which are of positions
  auto room = scratch.take<std::uint32_t>(sent);
  auto missed = scratch.take<float>(codings_.exact() ? 0 : sent);
  const auto [lists, drawings] = exec.workspace->take<EncodeList, kernels::DecodeJob>(owners);
  accumulate(exec, job, {}, owned.results);

  const kernels::Stopwatch watch(job.encode_seconds);
  std::size_t drawn = 0;
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    const bool own = owner == part.self;
    const std::uint64_t k = k_of(owner);
    const Shape& shape = part.shapes.gradients[owner];
    EncodeList& list = lists[owner] = {.header = part.of_owner(job.header, owner),
                                       .shape = shape,
                                       .random = job.key_of(owner),
                                       .index = {},
                                       .value = acc,
                                       .poison = {.results = owned.results},
                                       .status = job.status};
    list.header.k = k;
    if (k != list.header.count) {
      drawings[drawn] = drawing(codings_, list.header, job.status, own ? own_room : room.first(k));
      list.index = drawings[drawn++].index;
    }
    if (own) continue;
    room = room.subspan(k);
    auto& message = out.messages[owner];
    message = message.first(shape.bytes());
    if (codings_.exact()) {
      list.value = lay_out(shape, message).floats(k);
    } else {
      list.value = missed.first(k);
      missed = missed.subspan(k);
    }
    out.kept += k;
  }
  if (part.self != Part::kNobody) owned.sums = OwnedAcc{lists[part.self].index, acc, not_finite};
  if (drawn > 0) draws.coding->decode(exec, drawings.first(drawn));
  kernels::together(exec, [&] {
    for (std::uint32_t owner = 0; owner < owners; ++owner) {
      const EncodeList& list = lists[owner];
      kernels::take_owned(exec, taken_job(part, owned, {owner, list.index, list.value}),
                          list.value);
    }
  });
  encode_together(exec, codings_, job, lists, out);
}

}  // namespace winnow::compress
