// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/bucket.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "comm/plan/hash.hpp"
#include "kernels/arithmetic/element.hpp"
#include "kernels/exec/place_memory.hpp"
#include "winnow/error.hpp"

namespace winnow::comm {
namespace {

using compress::Piece;

/// Cuts segments into parts of at most max_count positions and pieces of at most max_piece; each
/// piece begins at a multiple of `unit`. A parameter that was cut before keeps its pieces, whatever
/// their length.
std::vector<BucketPart> cut_parts(std::span<const Segment> segments,
                                  const std::vector<bool>& chosen, ParameterStates& parameters,
                                  std::uint64_t max_count, std::uint64_t max_piece,
                                  std::uint64_t unit) {
  std::vector<BucketPart> parts;
  const auto next_base = [unit](const compress::Part& part) {
    return (part.count + unit - 1) / unit * unit;
  };
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (!chosen[s]) continue;
    const std::uint64_t count = segments[s].elements.size();
    auto& parameter = parameters[segments[s].id];
    parameter.count = count;
    if (!segments[s].name.empty()) parameter.name = segments[s].name;
    if (parameter.piece_length == 0) {
      const std::uint64_t most = std::min(max_count, max_piece);
      parameter.piece_length = most;
      parameter.pieces.resize((count + most - 1) / most);
    }
    const std::uint64_t length = parameter.piece_length;
    for (std::uint64_t offset = 0; offset < count; offset += length) {
      const std::uint64_t size = std::min(length, count - offset);
      if (parts.empty() || next_base(parts.back().part) + size > max_count) parts.emplace_back();
      BucketPart& target = parts.back();
      const std::uint64_t base = next_base(target.part);
      target.part.pieces.push_back({
          .elements = segments[s].elements.subspan(offset, size),
          .rounds_to = segments[s].elements.type(),
          .parameter = &parameter,
          .state = &parameter.pieces[offset / length],
          .offset = offset,
          .base = static_cast<std::uint32_t>(base),
      });
      target.segments.push_back(s);
      target.part.count = base + size;
    }
  }
  return parts;
}

CostShape shape_of(const compress::Part& part, const World& world,
                   const compress::Compressor& compressor) {
  CostShape shape{world.ranks, part.count, part.most_k, compressor.codings(), world.topology};
  shape.parameters = part.pieces.size();
  if (!compressor.has_sums_share()) return shape;
  shape.sums_k = 0;
  for (const Piece& piece : part.pieces)
    shape.sums_k += compressor.kept_sums(piece.elements.size());
  return shape;
}

/// Hashes a plan: which segments travel how, and with how many elements. In two levels also who
/// serves which shard, since PieceState::owned_by_plan holds such a hash.
std::uint64_t plan_id(const Bucket& bucket, const Topology& topology) {
  Hash hash;
  hash.add(bucket.id);
  for (const BucketPart& part : bucket.parts) {
    hash.add(part.schedule->name).add(part.part.most_k);
    for (int rank = 0; part.schedule->inner != nullptr && rank < topology.ranks(); ++rank) {
      hash.add(static_cast<std::uint64_t>(topology.node_of(rank)));
    }
    for (std::size_t i = 0; i < part.segments.size(); ++i) {
      const Piece& piece = part.part.pieces[i];
      hash.add(part.segments[i]).add(piece.offset).add(piece.elements.size());
    }
  }
  return hash.value();
}

/// The codings of the messages that go to all: of the first owner who keeps something.
std::string coding_of(const compress::Part& part, const compress::Compressor& compressor) {
  const compress::PartShapes& shapes = part.shapes;
  const auto keeps = std::ranges::find_if(part.owner_k, [](std::uint64_t k) { return k > 0; });
  const auto owner = static_cast<std::size_t>(keeps - part.owner_k.begin());
  std::string text;
  compress::name_codings(owner < shapes.sums.size() ? shapes.sums[owner] : shapes.gradients.front(),
                         compressor.codings(), text);
  return text;
}

/// UsageError unless as many messages as a bucket of `count` elements needs have numbers.
void expect_messages(std::uint64_t messages, std::uint64_t count, const Options& options) {
  WINNOW_EXPECTS(messages <= kMaxParts, "a bucket of " + std::to_string(count) +
                                            " elements needs more than " +
                                            std::to_string(kMaxParts) + " messages of max_part=" +
                                            std::to_string(options.max_part) + "; raise max_part");
}

}  // namespace

std::string dense_reason(std::uint64_t count, const Options& options) {
  if (!options.enable) return "switched off (enable=0)";
  const std::uint64_t bytes = count * sizeof(float);
  if (bytes < options.min_bytes) {
    return std::to_string(bytes) +
           " bytes are below min_bytes=" + std::to_string(options.min_bytes);
  }
  return {};
}

const MemorySource* residual_memory(const Options& options, Place place) {
  const bool pinned = options.residual_memory == ResidualMemory::pinned_host;
  return pinned && place == Place::cuda ? &kernels::pinned_memory() : nullptr;
}

Bucket plan_bucket(std::uint64_t id, std::span<const Segment> segments, const Options& options,
                   World world, const compress::Compressor& compressor,
                   ParameterStates& parameters) {
  const Topology topology =
      world.topology != nullptr ? *world.topology : Topology::uniform(world.ranks, 1);
  Bucket bucket;
  bucket.id = id;
  bucket.compressor = &compressor;
  for (const Segment& segment : segments) bucket.count += segment.elements.size();

  bucket.words.reason = dense_reason(bucket.count, options);
  std::vector<bool> compressed(segments.size(), bucket.words.reason.empty());
  std::vector<bool> rest(segments.size());
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (is_exempt(segments[s], options)) compressed[s] = false;
  }
  const bool automatic = options.max_part == Options::kAutomatic;
  std::uint64_t most = automatic ? Options::kMaxPart : options.max_part;
  if (world.place == Place::cuda) most = std::min(most, kMostOnDevice);
  expect_messages((bucket.count + most - 1) / most, bucket.count, options);  // before work for each
  const std::uint64_t block = compressor.block() > 0 ? compressor.block() : Options::kMaxPart;
  const auto cut_compressed = [&](ParameterStates& states, std::uint64_t longest) {
    auto parts = cut_parts(segments, compressed, states, longest, block, kernels::Partition::kUnit);
    for (BucketPart& part : parts) {
      compress::share_out(part.part, compressor, 1, compress::Part::kNobody);
    }
    return parts;
  };

  std::vector<BucketPart> parts;
  if (bucket.count == 0) {
    bucket.words.reason = "nothing to reduce";
  } else if (std::ranges::find(compressed, true) == compressed.end()) {
    if (bucket.words.reason.empty()) bucket.words.reason = "every parameter is exempt";
  } else {
    ParameterStates for_a_look;
    std::vector<CostShape> shapes;
    for (const BucketPart& part : cut_compressed(for_a_look, most)) {
      shapes.push_back(shape_of(part.part, world, compressor));
    }
    Choice choice = choose_schedule(options, shapes, world, compressor);
    const Schedule& schedule = *choice.schedule;
    bucket.words.reason = std::move(choice.reason);
    bucket.costs.enough = choice.enough;
    if (&schedule == &kDense) {
      compressed.assign(segments.size(), false);
    } else {
      const std::uint64_t longest = longest_part(schedule, world, compressor, bucket.count);
      parts = cut_compressed(parameters, automatic ? std::min(longest, most) : most);
    }
    if (!parts.empty() && schedule.inner == nullptr) {
      bucket.as_given = compressor.keeps_all() ? AsGiven::pass : AsGiven::selection;
    }
    for (BucketPart& part : parts) {
      part.schedule = &schedule;
      if (schedule.inner != nullptr) {
        part.shards = cut_shards(part.part, topology, world.rank, *schedule.inner, compressor);
      }
      share_out(part.part, schedule, compressor, world.ranks, world.rank);
    }
  }
  for (std::size_t s = 0; s < segments.size(); ++s) rest[s] = !compressed[s];
  auto dense_parts = cut_parts(segments, rest, parameters, most, block, 1);
  for (BucketPart& part : dense_parts) part.schedule = &kDense;

  bucket.compressed = parts.size();
  bucket.parts = std::move(parts);
  std::ranges::move(dense_parts, std::back_inserter(bucket.parts));
  std::size_t messages = 0;
  for (BucketPart& part : bucket.parts) {
    part.shards.parts = bucket.parts.size();
    messages = std::max(messages,
                        bucket.parts.size() * std::max(part.shards.of_rail.size(), std::size_t{1}));
  }
  expect_messages(messages, bucket.count, options);
  std::uint64_t longest = 0;
  for (const BucketPart& part : std::span(bucket.parts).subspan(bucket.compressed)) {
    longest = std::max(longest, part.part.count * sizeof(float));
  }
  bucket.ring = world.links.ring;
  if (longest > 0) bucket.words.note = ring_note(world.links, longest);
  bucket.words.reason += bucket.words.note;
  const MemorySource* const residuals = residual_memory(options, world.place);
  const Schedule* last = nullptr;
  for (const BucketPart& part : bucket.parts) {
    for (const Piece& piece : part.part.pieces) piece.parameter->residual_memory = residuals;
    if (part.schedule != last) {
      if (last != nullptr) bucket.words.schedule += '+';
      bucket.words.schedule += part.schedule->name;
      last = part.schedule;
    }
    const CostShape shape = shape_of(part.part, world, compressor);
    bucket.costs.dense_wire_bytes += ring_bytes(shape.count, sizeof(float), shape.ranks);
    bucket.costs.wire_bytes += part.schedule->wire_bytes(shape);
  }
  if (bucket.compressed > 0) {
    const BucketPart& first = bucket.parts.front();
    const bool whole = first.shards.of_rail.empty();
    bucket.words.coding =
        coding_of(whole ? first.part : first.shards.of_rail.front().part, compressor);
  }
  bucket.plan = plan_id(bucket, topology);
  return bucket;
}

void make_states(const Exec& exec, Bucket& bucket, const compress::Preconditioner& preconditioner) {
  for (const BucketPart& part : bucket.parts) {
    for (const Piece& piece : part.part.pieces) preconditioner.make_state(exec, *piece.parameter);
  }
  if (bucket.table != nullptr) compress::make_residual(exec, *bucket.table);
  // Beside compressed parts also those of dense ones, which a poisoned call puts back.
  const std::size_t kept = bucket.mixed() ? bucket.parts.size() : bucket.compressed;
  for (BucketPart& part : std::span(bucket.parts).first(kept)) {
    for (const Piece& piece : part.part.pieces) compress::make_residual(exec, *piece.parameter);
    for (Shard& shard : part.shards.of_rail) {
      shard.bounds = compress::make_bounds(exec, shard.states);
    }
  }
  for (BucketPart& part : std::span(bucket.parts).first(bucket.compressed)) {
    std::vector<Shard>& shards = part.shards.of_rail;
    if (shards.empty()) compress::plan_scratch(exec, *bucket.compressor, part.part);
    for (Shard& shard : shards) compress::plan_scratch(exec, *bucket.compressor, shard.part);
  }
}

void view(Bucket& bucket, std::span<const Segment> segments) {
  for (BucketPart& part : bucket.parts) {
    for (std::size_t i = 0; i < part.segments.size(); ++i) {
      Piece& piece = part.part.pieces[i];
      piece.elements =
          segments[part.segments[i]].elements.subspan(piece.offset, piece.elements.size());
    }
  }
}

}  // namespace winnow::comm
