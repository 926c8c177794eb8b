// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/plain_all_reduce.hpp"

#include <algorithm>
#include <string>

#include "comm/schedule/collective.hpp"
#include "kernels/arithmetic/element.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/workspace_internal.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/reduce.hpp"

namespace winnow::comm {
namespace {

using kernels::Stopwatch;

/// All elements as one view if they are adjacent in memory, else empty.
Elements contiguous(std::span<const Segment> segments, std::uint64_t count) {
  const Elements first = segments.front().elements;
  const std::byte* end = first.bytes().data();
  for (const Segment& segment : segments) {
    const auto bytes = segment.elements.bytes();
    if (bytes.data() != end) return {};
    end += bytes.size();
  }
  return {first.bytes().data(), count, first.type()};
}

/// Why these travel dense.
std::string reason_for_dense(std::span<const Segment> segments, ReduceOp op) {
  if (op == ReduceOp::minimum) return "the minimum travels dense";
  if (op == ReduceOp::maximum) return "the maximum travels dense";
  if (op == ReduceOp::product) return "the product travels dense";
  return std::string(name_of(segments.front().elements.type())) + " elements travel dense";
}

void clear(const Exec& exec, std::span<const Segment> segments) {
  for (const Segment& segment : segments) kernels::zero(exec, segment.elements.bytes());
}

}  // namespace

Bucket PlainAllReduce::plan(std::uint64_t id, const Options&, const World& world,
                            const compress::Compressor&, ParameterStates&) const {
  Bucket bucket{.id = id, .plan = id, .words = {.reason = reason_for_dense(segments(), op())}};
  for (const Segment& segment : segments()) bucket.count += segment.elements.size();
  if (bucket.count == 0) {
    bucket.words.reason = "nothing to reduce";
    return bucket;
  }
  bucket.words.schedule = "dense";
  bucket.unit = kernels::travelling_bytes(segments().front().elements.type());
  bucket.costs.dense_wire_bytes = ring_bytes(bucket.count, bucket.unit, world.ranks);
  bucket.costs.wire_bytes = dense_bytes(bucket.count, bucket.unit, world.ranks);
  bucket.ring = world.links.ring;
  bucket.words.note = ring_note(world.links, bucket.count * bucket.unit);
  bucket.words.reason += bucket.words.note;
  return bucket;
}

bool PlainAllReduce::reduce(const CallParts& call) const {
  const std::uint64_t count = call.bucket.count;
  if (count == 0) return true;
  const Exec& exec = call.exec();
  Transport& transport = call.setup.transport();
  const ElementType type = call.segments.front().elements.type();
  call.stats.kept = count;
  call.stats.wire_bytes = dense_bytes(count, bytes_of(type), transport.size());
  Elements all = contiguous(call.segments, count);
  Workspace& scratch = kernels::scratch_of(exec);
  const bool packed =
      all.size() == 0 || Workspace::Internal::is_foreign(scratch, all.bytes().data());
  if (packed) {
    const Stopwatch watch(call.stats.select_seconds);
    all = {scratch.take<std::byte>(count * bytes_of(type)).data(), count, type};
    std::span<std::byte> rest = all.bytes();
    for (const Segment& segment : call.segments) {
      const std::span<const std::byte> from = segment.elements.bytes();
      kernels::copy(exec, rest.first(from.size()), from);
      rest = rest.subspan(from.size());
    }
  }
  try {
    const Stopwatch watch(call.stats.exchange_seconds);
    all_reduce({transport, exec, call.setup.deadline(), call.bucket.ring}, all,
               op() == ReduceOp::average ? ReduceOp::sum : op());
  } catch (...) {
    clear(exec, call.segments);
    throw;
  }
  const int next = (transport.rank() + 1) % transport.size();
  if (!call.setup.rails->on_node(next)) call.stats.network_bytes = call.stats.wire_bytes;
  const Stopwatch watch(call.stats.add_seconds);
  if (op() == ReduceOp::average) kernels::average(exec, all, transport.size());
  if (!packed) return true;
  std::span<const std::byte> from = all.bytes();
  for (const Segment& segment : call.segments) {
    const auto to = segment.elements.bytes();
    kernels::copy(exec, to, from.first(to.size()));
    from = from.subspan(to.size());
  }
  return true;
}

}  // namespace winnow::comm
