// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/partial.hpp"

#include <algorithm>
#include <array>

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
  if (message.value.size() == message.index.size()) return {message.index, message.value};
  const auto value = room.first(message.index.size());
  kernels::dequantize(exec, message.format, value.size(), message.coded, 0, value);
  return {message.index, value};
}

/// Adds two messages of the same positions.
void add_values(const Exec& exec, const MessageView& first, const MessageView& second,
                std::span<float> out, MessageView& sum) {
  std::array terms{term(first), term(second)};
  for (kernels::Term& term : terms) term.index = {};
  kernels::ordered_sum(exec, {.terms = {terms}, .sums = kernels::alone({out})});
  sum.index = first.index;
  sum.value = out;
}

/// Makes `sum` the union of two lists; the spans have room for both.
void merge_lists(const Exec& exec, const MessageView& first, const MessageView& second,
                 std::span<std::uint32_t> index, std::span<float> value, MessageView& sum) {
  Workspace& scratch = kernels::scratch_of(exec);
  const Workspace::Scope scope(scratch);
  const auto decoded = scratch.take<float>(value.size());
  const auto size = scratch.take<std::uint64_t>(1);
  kernels::merge(exec, {.first = list_of(exec, first, decoded),
                        .second = list_of(exec, second, decoded.subspan(first.index.size())),
                        .index = index,
                        .value = value,
                        .size = size.data(),
                        .count = sum.header.count});
  sum.header.k = kernels::read(exec, size.data());
  sum.index = index.first(sum.header.k);
  sum.value = value.first(sum.header.k);
}

/// The indices of a message, or zeros if some message was not sound, so that they may be anything:
/// on the host an index that is not below count is written out of bounds. The message with the
/// zeros has poison, since the call is spoiled.
std::span<const std::uint32_t> within_bounds(const Exec& exec, std::span<const std::uint32_t> index,
                                             const kernels::CallStatus& status) {
  const auto copy = kernels::scratch_of(exec).take<std::byte>(index.size_bytes());
  kernels::copy(exec, copy, std::as_bytes(index));
  Exec unsound = exec;
  unsound.condition = kernels::unsound(status);
  kernels::fill(unsound, std::span(reinterpret_cast<float*>(copy.data()), index.size()), 0);
  return {reinterpret_cast<const std::uint32_t*>(copy.data()), index.size()};
}

}  // namespace

Codings partial_codings(const Codings& codings) {
  return {.index = codings.index, .seed = codings.seed};
}

std::size_t partial_bytes(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  const Codings exact = partial_codings(codings);
  return message_bytes(count, shortest_k(count, k, exact), exact);
}

Header partial_header(const Header& header, int ranks, const Codings& codings) {
  if (ranks == 1) return header;
  Header partial = header;
  partial.kind = Header::Kind::partial;
  if (codings.drawn()) return partial;  // all of the same positions
  const std::uint64_t most = std::min(static_cast<std::uint64_t>(ranks) * header.k, header.count);
  partial.k = shortest_k(header.count, most, partial_codings(codings));
  return partial;
}

std::size_t most_bytes(const Header& header, const Codings& codings) {
  return header.kind == Header::Kind::partial ? partial_bytes(header.count, header.k, codings)
                                              : message_bytes(header.count, header.k, codings);
}

MessageView Compressor::merge(const Exec& exec, const Header& header, const MessageView& first,
                              const MessageView& second) const {
  Workspace& scratch = kernels::scratch_of(exec);
  const Codings exact = partial_codings(codings_);
  const std::uint64_t count = header.count;
  MessageView sum{.header = header, .index = {}, .value = {}, .format = exact.value, .coded = {}};
  sum.header.flags |= first.header.flags | second.header.flags;
  if (draws()) {
    add_values(exec, first, second, scratch.take<float>(header.k), sum);
    return sum;
  }
  // Two lists are merged before it is known how long their union is.
  const std::uint64_t room = header.k < count ? header.k : 2 * count;
  const auto index = scratch.take<std::uint32_t>(room);
  const auto value = scratch.take<float>(room);
  const auto all = scratch.take<float>(header.k < count ? 0 : count);
  std::array terms{term(first), term(second)};
  std::span<const kernels::Term> added(terms);
  if (!first.carries_all() && !second.carries_all()) {
    merge_lists(exec, first, second, index, value, sum);
    if (shortest_k(count, sum.header.k, exact) != count) return sum;
    terms[0] = term(sum);
    added = added.first(1);
  }
  // A sum that is not finite is found in the result.
  kernels::ordered_sum(exec, {.terms = {added}, .sums = kernels::alone({all})});
  sum.header.k = count;
  sum.index = {};
  sum.value = all;
  return sum;
}

void Compressor::pack(const Exec& exec, MessageView& sum, std::span<std::byte> out,
                      kernels::CallStatus* status) const {
  const Header& header = sum.header;
  const Codings written = codings_of(header.kind);
  const auto message = out.first(message_bytes(header.count, header.k, written));
  const auto value_part = lay_out(header.count, header.k, message, written).value_part;
  const auto values = sum.coded.empty() ? std::as_bytes(sum.value) : sum.coded;
  kernels::copy(exec, value_part.first(values.size()), values);
  kernels::zero(exec, value_part.subspan(values.size()));
  const auto index = status == nullptr ? sum.index : within_bounds(exec, sum.index, *status);
  (void)seal(exec, header, index, message, written, {}, status);
  sum.bytes = message;
}

}  // namespace winnow::compress
