// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What a reduce-scatter does that an all-reduce does not.
#include <algorithm>

#include "comm/reducer/allreducer_impl.hpp"
#include "comm/schedule/scatter.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow {

/// As reduce, but ranks have not seen the same messages, so they tell each other whether these were
/// finite.
bool AllReducer::Impl::scatter() {
  comm::Scatter shards(exchanges);
  shards.exchange();
  if (!all_agree(shards.sum())) return false;
  shards.write();
  return true;
}

/// Whether all ranks say so.
bool AllReducer::Impl::all_agree(bool finite) {
  const kernels::Stopwatch watch(book.call().wait_seconds);
  const std::byte mine{static_cast<std::uint8_t>(finite ? 1 : 0)};
  const auto all = exec.workspace->take<std::byte>(static_cast<std::size_t>(transport->size()));
  context.control().all_gather(context.host(), {&mine, 1}, all, deadline());
  for (int peer = 0; peer < transport->size(); ++peer) {
    if (peer != transport->rank()) comm::count_sent(exchanges.front(), peer, 1);
  }
  return std::ranges::all_of(all, [](std::byte said) { return said == std::byte{1}; });
}

/// This rank's shard of a reduce-scatter's input.
Elements AllReducer::Impl::own_shard(std::span<const Segment> segments) const {
  const Elements& all = segments.front().elements;
  const std::size_t bytes = output->size() * bytes_of(all.type());
  const std::size_t begin = bytes * static_cast<std::size_t>(transport->rank());
  return {all.bytes().data() + begin, output->size(), all.type()};
}

/// Copies a reduce-scatter's result to its output.
void AllReducer::Impl::deliver(std::span<const Segment> segments) const {
  if (output == nullptr || output->size() == 0) return;
  const Elements own = own_shard(segments);
  if (own.bytes().data() != output->bytes().data()) {
    kernels::copy(exec, output->bytes(), own.bytes());
  }
}

}  // namespace winnow
