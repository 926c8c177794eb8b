// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/reducer/native_only.hpp"

#include "kernels/arithmetic/element.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
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

void clear(const Exec& exec, std::span<const Segment> segments) {
  for (const Segment& segment : segments) kernels::zero(exec, segment.elements.bytes());
}

}  // namespace

std::string native_only_reason(std::span<const Segment> segments, ReduceOp op) {
  if (op == ReduceOp::minimum) return "the minimum travels dense";
  if (op == ReduceOp::maximum) return "the maximum travels dense";
  if (op == ReduceOp::product) return "the product travels dense";
  for (const Segment& segment : segments) {
    if (kernels::is_gradient(segment.elements.type())) continue;
    return std::string(name_of(segment.elements.type())) + " elements travel dense";
  }
  return {};
}

Bucket plan_native_only(std::uint64_t id, std::span<const Segment> segments, std::string reason,
                        const World& world) {
  Bucket bucket{.id = id, .plan = id, .reason = std::move(reason), .native_only = true};
  for (const Segment& segment : segments) bucket.count += segment.elements.size();
  if (bucket.count == 0) {
    bucket.reason = "nothing to reduce";
    return bucket;
  }
  bucket.schedule = "dense";
  const std::size_t unit = kernels::travelling_bytes(segments.front().elements.type());
  bucket.dense_wire_bytes = ring_bytes(bucket.count, unit, world.ranks);
  bucket.wire_bytes = dense_bytes(bucket.count, unit, world.ranks);
  bucket.ring = world.links.ring;
  bucket.note = ring_note(world.links, bucket.count * unit);
  bucket.reason += bucket.note;
  return bucket;
}

void reduce_natively(const Collective& collective, std::span<const Segment> segments, ReduceOp op,
                     Stats& stats) {
  std::uint64_t count = 0;
  for (const Segment& segment : segments) count += segment.elements.size();
  if (count == 0) return;
  stats.kept = count;
  const Exec& exec = collective.exec;
  const ElementType type = segments.front().elements.type();
  stats.wire_bytes = dense_bytes(count, bytes_of(type), collective.world.size());
  Elements all = contiguous(segments, count);
  Workspace& scratch = kernels::scratch_of(exec);
  const bool packed = all.size() == 0 || scratch.is_foreign(all.bytes().data());
  if (packed) {
    const Stopwatch watch(stats.select_seconds);
    all = {scratch.take<std::byte>(count * bytes_of(type)).data(), count, type};
    std::span<std::byte> rest = all.bytes();
    for (const Segment& segment : segments) {
      const std::span<const std::byte> from = segment.elements.bytes();
      kernels::copy(exec, rest.first(from.size()), from);
      rest = rest.subspan(from.size());
    }
  }
  try {
    const Stopwatch watch(stats.exchange_seconds);
    all_reduce(collective, all, op == ReduceOp::average ? ReduceOp::sum : op);
  } catch (...) {
    clear(exec, segments);
    throw;
  }
  const Stopwatch watch(stats.add_seconds);
  if (op == ReduceOp::average) kernels::average(exec, all, collective.world.size());
  if (!packed) return;
  std::span<const std::byte> from = all.bytes();
  for (const Segment& segment : segments) {
    const auto to = segment.elements.bytes();
    kernels::copy(exec, to, from.first(to.size()));
    from = from.subspan(to.size());
  }
}

}  // namespace winnow::comm
