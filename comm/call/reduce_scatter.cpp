// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/reduce_scatter.hpp"

#include <algorithm>
#include <cstddef>

#include "comm/plan/hash.hpp"
#include "comm/plan/scatter_plan.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::comm {
namespace {

Segment shard_of(const Segment& input, const Elements& output, int rank) {
  const Elements& all = input.elements;
  const std::size_t begin = output.size() * bytes_of(all.type()) * static_cast<std::size_t>(rank);
  return {.elements = {all.bytes().data() + begin, output.size(), all.type()}};
}

}  // namespace

ReduceScatter::ReduceScatter(const Segment& input, const Elements& output, ReduceOp op,
                             const World& world)
    : Request({&input_, 1}, op),
      input_(input),
      output_(output),
      wrong_(refuse_scatter(input, output, op, world)),
      own_(wrong_.empty() ? shard_of(input, output, world.rank) : Segment()) {}

std::uint64_t ReduceScatter::id(std::uint64_t of_segments) const {
  const char* const kind = wrong_.empty() ? "reduce_scatter" : "wrong reduce_scatter";
  return Hash().add(of_segments).add(kind).value();
}

std::string ReduceScatter::lines(const Options& options) const {
  return "reduce_scatter: " + Request::lines(options);
}

std::string ReduceScatter::refusal(const Setup& setup, const ParameterStates& states) const {
  if (!wrong_.empty()) return wrong_;
  std::string refusal = Request::refusal(setup, states);
  if (!refusal.empty()) return refusal;
  const Segment written{.elements = output_, .id = input_.id};
  return refuse_memory({&written, 1}, setup.exec().place);
}

std::string ReduceScatter::capture_refusal() const {
  return "a reduce_scatter cannot be captured into a CUDA graph: the host waits within it";
}

Bucket ReduceScatter::plan(std::uint64_t id, const Options& options, const World& world,
                           const compress::Compressor& compressor, ParameterStates& states) const {
  return plan_scatter(id, input_, options, world, compressor, states);
}

bool ReduceScatter::all_agree(const CallParts& call, bool finite) const {
  if (call.bucket.compressed == 0) return finite;
  const kernels::Stopwatch watch(call.stats.wait_seconds);
  const Setup& setup = call.setup;
  const int ranks = setup.world.ranks;
  const std::byte mine{static_cast<std::uint8_t>(finite ? 1 : 0)};
  const auto all = call.exec().workspace->take<std::byte>(static_cast<std::size_t>(ranks));
  setup.context.control().all_gather(setup.context.host(), {&mine, 1}, all, setup.deadline());
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != setup.world.rank) count_sent(call.exchanges.front(), peer, 1);
  }
  return std::ranges::all_of(all, [](std::byte said) { return said == std::byte{1}; });
}

void ReduceScatter::deliver(const Exec& exec) const {
  const auto own = own_.elements.bytes(), output = output_.bytes();
  if (own.data() != output.data() && !own.empty()) kernels::copy(exec, output, own);
}

}  // namespace winnow::comm
