// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/scatter_plan.hpp"

#include <functional>
#include <winnow/error.hpp>

#include "comm/plan/hash.hpp"
#include "comm/schedule/schedule.hpp"
#include "comm/transport/memory.hpp"
#include "kernels/arithmetic/element.hpp"

namespace winnow::comm {
namespace {

using compress::Part;

/// Why all of it goes dense, or empty.
std::string reason_for_dense(std::uint64_t count, const Options& options,
                             const compress::Compressor& compressor) {
  if (std::string reason = dense_reason(count, options); !reason.empty()) return reason;
  if (options.schedule == "dense") return "schedule=dense";
  return compressor.lossless() ? compressor.name() + " keeps everything" : std::string();
}

/// `count` elements of a parameter from `offset` on, in pieces.
BucketPart part_of(const Segment& input, compress::ParameterState& parameter, std::uint64_t offset,
                   std::uint64_t count) {
  BucketPart part;
  part.part.count = count;
  const std::uint64_t length = parameter.piece_length;
  for (std::uint64_t at = 0; at < count; at += length) {
    part.part.pieces.push_back({.elements = input.elements.subspan(offset + at, length),
                                .rounds_to = input.elements.type(),
                                .parameter = &parameter,
                                .state = &parameter.pieces[(offset + at) / length],
                                .offset = offset + at,
                                .base = static_cast<std::uint32_t>(at)});
    part.segments.push_back(0);
  }
  return part;
}

}  // namespace

std::string refuse_scatter(const Segment& input, const Elements& output, ReduceOp op,
                           const World& world) {
  if (op != ReduceOp::sum && op != ReduceOp::average) {
    return "reduce_scatter takes sums and averages";
  }
  const Elements& in = input.elements;
  if (!kernels::is_gradient(in.type())) {
    return "reduce_scatter takes elements of float32, bf16 and fp16, not " +
           std::string(name_of(in.type()));
  }
  if (in.type() != output.type()) {
    return "the output of reduce_scatter is of another type than its input";
  }
  const auto wrong = [](const Elements& elements) {
    return memory_error(elements.data(), elements.size(), bytes_of(elements.type()));
  };
  if (!wrong(in).empty()) return "the input of reduce_scatter" + wrong(in);
  if (!wrong(output).empty()) return "the output of reduce_scatter" + wrong(output);
  if (in.size() != static_cast<std::uint64_t>(world.ranks) * output.size()) {
    return "the input of reduce_scatter has " + std::to_string(in.size()) + " elements and not " +
           std::to_string(world.ranks) + " shards of " + std::to_string(output.size());
  }
  const std::less before;  // a total order, also of pointers into different arrays
  const auto from = in.bytes(), to = output.bytes();
  const bool apart =
      !before(to.data(), from.data() + from.size()) || !before(from.data(), to.data() + to.size());
  const std::byte* const own = from.data() + static_cast<std::size_t>(world.rank) * to.size();
  if (!apart && to.data() != own) {
    return "the output of reduce_scatter overlaps its input: it is to be apart, or this rank's "
           "shard of it";
  }
  return {};
}

Bucket plan_scatter(std::uint64_t id, const Segment& input, const Options& options,
                    const World& world, const compress::Compressor& compressor,
                    ParameterStates& parameters) {
  Bucket bucket{.id = id, .plan = 0, .count = input.elements.size(), .compressor = &compressor};
  bucket.ring = LinkModel::kNever;
  const auto ranks = static_cast<std::uint64_t>(world.ranks);
  const std::uint64_t shard = bucket.count / ranks;
  const CostShape whole{.ranks = world.ranks, .count = bucket.count, .topology = world.topology};
  bucket.costs.dense_wire_bytes = kDenseScatter.wire_bytes(whole);
  bucket.plan = Hash().add(id).value();
  if (bucket.count == 0) {
    bucket.words.reason = "nothing to reduce";
    return bucket;
  }
  const std::uint64_t most =
      world.place == Place::cuda ? kMostOnDevice : std::uint64_t{Options::kMaxPart};
  WINNOW_EXPECTS(shard <= most, "reduce_scatter takes shards of at most " + std::to_string(most) +
                                    " elements, not " + std::to_string(shard));
  const std::uint64_t block = compressor.block();
  const bool in_blocks = block > 0 && block < shard;
  WINNOW_EXPECTS(!in_blocks || shard % block == 0, compressor.name() +
                                                       " needs shards of whole blocks, unlike " +
                                                       std::to_string(shard) + " elements");
  const std::uint64_t length = in_blocks ? block : shard;
  compress::ParameterState& parameter = parameters[input.id];
  parameter.count = bucket.count;
  if (!input.name.empty()) parameter.name = input.name;
  if (parameter.piece_length == 0) {
    parameter.piece_length = length;
    parameter.pieces.resize(bucket.count / length);
  }
  WINNOW_EXPECTS(
      parameter.piece_length == length,
      label_of(input) +
          " has a residual that all_reduce, or reduce_scatter on another number of ranks, has "
          "cut otherwise; take an id of its own");
  parameter.residual_memory = residual_memory(options, world.place);

  bucket.words.reason = reason_for_dense(bucket.count, options, compressor);
  const bool dense = !bucket.words.reason.empty();
  if (dense) {
    BucketPart& part = bucket.parts.emplace_back(part_of(input, parameter, 0, bucket.count));
    part.schedule = &kDenseScatter;
    bucket.costs.wire_bytes = bucket.costs.dense_wire_bytes;
  } else {
    bucket.words.reason = "each rank's shard is a message";
    bucket.compressed = ranks;
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      BucketPart& part = bucket.parts.emplace_back(part_of(input, parameter, rank * shard, shard));
      part.schedule = &kScatter;
      compress::share_out(part.part, compressor, 1, Part::kNobody);
    }
    const Part& part = bucket.parts.front().part;
    bucket.costs.wire_bytes = kScatter.wire_bytes(
        {world.ranks, part.count, part.most_k, compressor.codings(), world.topology});
    compress::name_codings(part.shapes.gradients.front(), compressor.codings(),
                           bucket.words.coding);
  }
  const Schedule& schedule = *bucket.parts.front().schedule;
  bucket.words.schedule = schedule.name;
  bucket.plan = Hash().add(id).add(schedule.name).add(bucket.parts.front().part.most_k).value();
  return bucket;
}

}  // namespace winnow::comm
