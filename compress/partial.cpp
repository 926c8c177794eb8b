// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/partial.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include "compress/compressor.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/merge.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::compress {

namespace {

using kernels::SparseView;

/// The list that a message carries, its values decoded into `room` if they are coded.
SparseView list_of(const Exec& exec, const MessageView& message, std::span<float> room) {
  const kernels::Term& list = message.term;
  if (!list.is_coded()) return {list.index, list.value};
  const auto value = room.first(list.index.size());
  kernels::dequantize(exec, list.format, value.size(), list.coded, 0, value);
  return {list.index, value};
}

/// Adds two messages of the same positions.
kernels::Term add_values(const Exec& exec, const MessageView& first, const MessageView& second,
                         std::span<float> out) {
  std::array terms{first.term, second.term};
  for (kernels::Term& term : terms) term.index = {};
  kernels::ordered_sum(exec, {.terms = {terms}, .sums = kernels::alone({out})});
  return {.index = first.term.index, .value = out};
}

/// The union of two lists; the spans have room for both.
void merge_lists(const Exec& exec, const MessageView& first, const MessageView& second,
                 const Union& both) {
  Workspace& scratch = kernels::scratch_of(exec);
  const Workspace::Scope scope(scratch);
  const auto decoded = scratch.take<float>(both.value.size());
  kernels::merge(exec, {.first = list_of(exec, first, decoded),
                        .second = list_of(exec, second, decoded.subspan(first.term.index.size())),
                        .index = both.index,
                        .value = both.value,
                        .size = both.size,
                        .count = both.header.count});
}

/// `all` = the sum of messages; some carry every position.
void add_all(const Exec& exec, std::span<const kernels::Term> terms, std::span<float> all) {
  kernels::ordered_sum(exec, {.terms = {terms}, .sums = kernels::alone({all})});
}

/// For work that reads messages, which may be no messages.
Exec reading(Exec exec, const kernels::CallStatus* status) {
  if (status != nullptr) exec.condition = kernels::sound(*status);
  return exec;
}

}  // namespace

Codings partial_codings(const Codings& codings) {
  return {.index = codings.index, .seed = codings.seed};
}

ShortestPartial shortest_partial(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  const Codings exact = partial_codings(codings);
  const Shape list = shape_of(count, k, exact), all = shape_of(count, count, exact);
  return list.bytes() < all.bytes() ? ShortestPartial{k, list} : ShortestPartial{count, all};
}

void plan_partial(Part& part, int ranks, const Codings& codings) {
  const auto is_it = [&](const PartialShape& known) { return known.ranks == ranks; };
  if (ranks == 1 || std::ranges::any_of(part.shapes.partials, is_it)) return;
  const std::uint64_t most = std::min(static_cast<std::uint64_t>(ranks) * part.k, part.count);
  const auto [k, shape] =
      codings.drawn()  // all of the same positions
          ? ShortestPartial{part.k, shape_of(part.count, part.k, partial_codings(codings))}
          : shortest_partial(part.count, most, codings);
  part.shapes.partials.push_back({.ranks = ranks, .most_k = k, .longest = shape});
}

Header partial_header(const Header& header, const Part& part, int ranks) {
  if (ranks == 1) return header;
  Header partial = header;
  partial.kind = Header::Kind::partial;
  partial.k = part.partial_of(ranks).most_k;
  return partial;
}

std::size_t most_bytes(const Header& header, const Codings& codings) {
  return header.kind == Header::Kind::partial
             ? shortest_partial(header.count, header.k, codings).shape.bytes()
             : message_bytes(header.count, header.k, codings);
}

Merged Compressor::merge(const Exec& exec, const Header& header, const MessageView& first,
                         const MessageView& second, const kernels::CallStatus* status) const {
  Workspace& scratch = kernels::scratch_of(exec);
  const Exec sound = reading(exec, status);
  const std::uint64_t count = header.count;
  MessageView sum{.header = header};
  sum.header.flags |= first.header.flags | second.header.flags;
  if (codings_.drawn()) {
    sum.term = add_values(sound, first, second, scratch.take<float>(header.k));
    return sum;
  }
  // Two lists are merged before it is known how long their union is.
  const std::uint64_t room = header.k < count ? header.k : 2 * count;
  const auto [index, value] = scratch.take<std::uint32_t, float>(room);
  const auto all = scratch.take<float>(header.k < count ? 0 : count);
  const auto size = kernels::take_zeros<std::uint64_t>(exec, 1);
  // A later call may merge: that takes decoded values, and 8 bytes for each 2048 places.
  constexpr std::uint64_t kFew = 1024;
  scratch.reserve(room * sizeof(float) + room / 256 + kFew);
  if (first.carries_all() || second.carries_all()) {
    // A sum that is not finite is found in the result.
    add_all(sound, std::array{first.term, second.term}, all);
    sum.header.k = count;
    sum.term.value = all;
    return sum;
  }
  const Union both{sum.header, index, value, all, size.data()};
  merge_lists(sound, first, second, both);
  return both;
}

MessageView Compressor::finalize(const Exec& exec, const Union& both, std::uint64_t k,
                                 const kernels::CallStatus* status) const {
  MessageView sum{.header = both.header};
  const std::uint64_t count = sum.header.count;
  sum.header.k = shortest_partial(count, k, codings_).k;
  if (sum.header.k == count) {
    const kernels::Term list{.index = both.index.first(k), .value = both.value.first(k)};
    add_all(reading(exec, status), {&list, 1}, both.all);
    sum.term.value = both.all;
  } else {
    sum.term = {.index = both.index.first(k), .value = both.value.first(k)};
  }
  return sum;
}

void Compressor::pack(const Exec& exec, MessageView& sum, std::span<std::byte> out,
                      kernels::CallStatus* status) const {
  const Header& header = sum.header;
  const Codings written = codings_of(header.kind);
  const Shape shape = shape_of(header.count, header.k, written);
  const auto message = out.first(shape.bytes());
  const auto value_part = lay_out(shape, message).value_part;
  const auto values = sum.term.is_coded() ? sum.term.coded : std::as_bytes(sum.term.value);
  kernels::copy(exec, value_part.first(values.size()), values);
  kernels::zero(exec, value_part.subspan(values.size()));
  (void)finish_message(exec, header, shape, sum.term.index, message, written, {}, status);
  sum.bytes = message;
}

void bound_index(const Exec& exec, MessageView& view, const kernels::CallStatus& status) {
  std::span<const std::uint32_t>& index = view.term.index;
  const auto copy = kernels::scratch_of(exec).take<std::byte>(index.size_bytes());
  kernels::copy(exec, copy, std::as_bytes(index));
  Exec unsound = exec;
  unsound.condition = kernels::unsound(status);
  kernels::fill(unsound, std::span(reinterpret_cast<float*>(copy.data()), index.size()), 0);
  index = {reinterpret_cast<const std::uint32_t*>(copy.data()), index.size()};
}

}  // namespace winnow::compress
