// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/compressor.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "compress/lists.hpp"
#include "compress/partial.hpp"
#include "kernels/split.hpp"

namespace winnow::compress {

namespace {

using kernels::Partition;

/// The density of a stage of a warm-up.
double density_of(unsigned stage) {
  return std::ldexp(1, -2 * (static_cast<int>(stage) + 1));
}

/// Units below `unit` that belong to `owner`.
std::uint64_t units_before(const Partition& partition, std::uint32_t owner, std::uint64_t unit) {
  const std::uint64_t group = unit / partition.owners();
  return group + (partition.unit_of(owner, group) < unit ? 1 : 0);
}

/// Local numbers [begin, begin + count) of the positions of a piece that `owner` owns.
struct LocalRange {
  std::uint64_t begin, count;
};
LocalRange local_range(const Partition& partition, std::uint32_t owner, const Piece& piece) {
  const std::uint64_t size = piece.elements.size();
  const std::uint64_t first = piece.base / Partition::kUnit;
  const std::uint64_t last = first + (size + Partition::kUnit - 1) / Partition::kUnit;
  const std::uint64_t begin = units_before(partition, owner, first);
  std::uint64_t count = (units_before(partition, owner, last) - begin) * Partition::kUnit;
  const bool owns_last = count > 0 && partition.owner_of_unit(last - 1) == owner;
  if (owns_last) count -= (last - first) * Partition::kUnit - size;
  return {begin * Partition::kUnit, count};
}

}  // namespace

unsigned Compressor::stages() const {
  unsigned stages = 0;
  while (choice_.warm_up > 0 && density_of(stages) > choice_.argument) ++stages;
  return stages;
}

unsigned Compressor::stage_of(std::uint64_t calls) const {
  const unsigned all = stages();
  if (all == 0) return 0;
  const std::uint64_t length = (choice_.warm_up + all - 1) / all;
  return static_cast<unsigned>(std::min<std::uint64_t>(calls / length, all));
}

Compressor Compressor::at_stage(unsigned stage) const {
  Compressor then = *this;
  if (stage >= stages()) return then;
  then.choice_.argument = density_of(stage);
  if (has_sums_share()) then.choice_.sums = std::max(choice_.sums, then.choice_.argument);
  return then;
}

void Compressor::encode(const Exec& exec, const EncodeJob& job, EncodeResult& out) const {
  for (const Piece& piece : job.part.pieces) piece.state->mark_dirty();
  place_pieces(exec, job.part, out.owned);
  std::visit([&](const auto& how) { encode(exec, how, job, out); }, selection().support);
}

Codings Compressor::codings_of(Header::Kind kind) const {
  if (kind == Header::Kind::partial) return partial_codings(codings_);
  if (kind == Header::Kind::support) return codings_.without_values();
  return codings_;
}

std::uint16_t Compressor::decode_all(const Exec& exec, std::span<const ReceivedMessage> incoming,
                                     std::span<MessageView> views,
                                     kernels::CallStatus* call) const {
  if (incoming.empty()) return 0;
  const Codings codings = codings_of(incoming.front().expected.header.kind);
  return compress::decode_all(exec, incoming, codings, views, call);
}

MessageView Compressor::decode(const Exec& exec, std::span<const std::byte> message,
                               const Expected& expected, int sender) const {
  return compress::decode(exec, message, expected, sender, codings_of(expected.header.kind));
}

Shape longest_shape(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  const Shape shape = shape_of(count, k, codings);
  if (k != count || k == 0) return shape;
  // Indices grow with k, until at k = count there are none.
  const Shape shorter = shape_of(count, k - 1, codings);
  return shorter.bytes() > shape.bytes() ? shorter : shape;
}

namespace {

/// Fills in Part::shapes.
void plan_shapes(Part& part, const Compressor& compressor) {
  const Codings& codings = compressor.codings();
  part.shapes = {};
  if (part.self == Part::kNobody) {
    part.shapes.gradients = {shape_of(part.count, part.k, codings)};
    return;
  }
  for (std::uint32_t owner = 0; owner < part.partition.owners(); ++owner) {
    const std::uint64_t count = part.partition.local_count(owner);
    const std::uint64_t most_k = part.most_for[owner];
    part.shapes.gradients.push_back(compressor.knows_support()
                                        ? shape_of(count, most_k, codings)
                                        : longest_shape(count, most_k, codings));
    part.shapes.sums.push_back(shape_of(count, part.owner_k[owner], codings));
  }
}

}  // namespace

void plan_supports(Part& part, const Codings& codings) {
  for (std::uint32_t owner = 0; owner < part.partition.owners(); ++owner) {
    const std::uint64_t k = part.owner_k[owner];
    part.shapes.supports.push_back(
        shape_of(part.partition.local_count(owner), k, codings.without_values()));
    part.shapes.values.push_back(shape_of(k, k, codings));
  }
}

void share_out(Part& part, const Compressor& compressor, std::uint32_t owners, std::uint32_t self) {
  part.partition = Partition(owners, part.count);
  become_owner(part, compressor, self);
  part.owner_k.assign(self == Part::kNobody ? 0 : owners, 0);
  part.k = part.most_k = 0;
  for (Piece& piece : part.pieces) {
    const std::uint64_t size = piece.elements.size();
    part.most_k += compressor.kept(size);
    for (std::uint32_t owner = 0; owner < part.owner_k.size(); ++owner) {
      part.owner_k[owner] += compressor.kept_sums(local_range(part.partition, owner, piece).count);
    }
    piece.k = static_cast<std::uint32_t>(compressor.kept(size - piece.own_count));
    part.k += piece.k;
  }
  if (compressor.knows_support() || compressor.variable_k()) {
    // Chosen from a message, not from a piece: gaps travel too.
    part.k = part.most_k = compressor.kept(part.count);
    for (std::uint32_t owner = 0; owner < part.owner_k.size(); ++owner) {
      part.owner_k[owner] = compressor.kept(part.partition.local_count(owner));
    }
  }
  part.most_for = part.owner_k;
  if (!compressor.knows_support()) {
    for (std::uint32_t owner = 0; owner < part.most_for.size(); ++owner) {
      part.most_for[owner] = std::min(part.most_k, part.partition.local_count(owner));
    }
  }
  plan_shapes(part, compressor);
}

namespace {

/// A span whose size alone is read.
template <class T>
std::span<T> of_size(std::size_t size) {
  return {static_cast<T*>(nullptr), size};
}

}  // namespace

void plan_scratch(const Exec& exec, const Compressor& compressor, Part& part) {
  const Workspace::Scope scope(*exec.workspace);
  const std::uint32_t owners = part.partition.owners();
  const bool takes_turns = !part.shapes.supports.empty();  // then this rank becomes any owner
  const std::vector<kernels::Term> terms(owners);          // decoded before sums are selected
  std::vector<AccumulateJob> passes;
  std::vector<kernels::FeedbackSelectJob> plain_passes;
  std::vector<SumsJob> sums;
  for (const Piece& piece : part.pieces) {
    const std::uint64_t size = piece.elements.size();
    const std::uint64_t count = takes_turns ? part.most_owned(piece) : piece.own_count;
    const std::uint64_t k = takes_turns ? compressor.kept(count) : piece.own_k;
    kernels::FeedbackSpans spans{piece.elements, {}};
    spans.own.index = of_size<std::uint32_t>(list_room(count, k));
    passes.push_back(
        {.spans = spans, .index = of_size<std::uint32_t>(piece.k), .bounds = piece.state->bounds});
    plain_passes.push_back({.spans = spans});
    if (k == 0) continue;
    const std::uint64_t most = std::min(owners * compressor.kept(size), count);
    sums.push_back({.owned = {.own = spans.own, .count = count, .most = most},
                    .terms = {.host = terms},
                    .out = {.index = of_size<std::uint32_t>(k)},
                    .bounds = piece.state->bounds});
  }
  const Chooses* const how = compressor.chooses();
  part.scratch = {.gradients = how != nullptr
                                   ? how->accumulate_scratch(exec, passes)
                                   : kernels::feedback_select_scratch(exec, plain_passes)};
  if (how != nullptr && !sums.empty()) part.scratch.sums = how->select_sums_scratch(exec, sums);
  std::size_t& bytes = part.scratch.gradients;
  if (owners > 1) bytes = std::max(bytes, kernels::split_scratch(exec, part.partition, part.k));
  if (compressor.variable_k()) bytes = std::max(bytes, part.count * sizeof(float) + 64);
}

void become_owner(Part& part, const Compressor& compressor, std::uint32_t self) {
  part.self = self;
  for (Piece& piece : part.pieces) {
    const LocalRange range =
        self == Part::kNobody ? LocalRange{0, 0} : local_range(part.partition, self, piece);
    piece.own_begin = range.begin;
    piece.own_count = range.count;
    piece.own_k = static_cast<std::uint32_t>(compressor.kept_sums(range.count));
  }
}

}  // namespace winnow::compress
