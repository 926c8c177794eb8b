// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/device/partial.hpp"

#include <algorithm>
#include <array>

#include "compress/device/message.hpp"
#include "compress/partial.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/merge.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::compress {
namespace {

using kernels::SparseView;
using kernels::Term;

/// The list that a message carries, its values decoded into `room` where they are coded.
SparseView list_of(const Exec& exec, const MessageView& message, std::span<float> room) {
  if (message.value.size() == message.index.size()) return {message.index, message.value};
  const auto value = room.first(message.index.size());
  kernels::dequantize(exec, message.format, value.size(), message.coded, 0, value);
  return {message.index, value};
}

/// Makes `sum` the union of two lists; its spans have room for both.
void merge_lists(const Exec& exec, const MessageView& first, const MessageView& second,
                 std::span<std::uint32_t> index, std::span<float> value, MessageView& sum) {
  Workspace& scratch = *exec.device_workspace;
  const Workspace::Scope scope(scratch);
  const auto decoded = scratch.take<float>(value.size());
  const auto size = scratch.take<std::uint64_t>(1);
  kernels::merge(exec, {.first = list_of(exec, first, decoded),
                        .second = list_of(exec, second, decoded.subspan(first.index.size())),
                        .index = index,
                        .value = value,
                        .size = size.data()});
  kernels::read(exec, std::as_writable_bytes(std::span(&sum.header.k, 1)), std::as_bytes(size));
  sum.index = index.first(sum.header.k);
  sum.value = value.first(sum.header.k);
}

}  // namespace

std::span<const std::uint32_t> sum_terms(const Exec& exec, std::span<const Term> terms,
                                         std::span<float> sum) {
  const auto not_finite = kernels::take_zeros<std::uint32_t>(exec, 1);
  kernels::ordered_sum(exec, {.terms = {terms}, .sum = sum, .not_finite = not_finite.data()});
  return not_finite;
}

MessageView merge_on_device(const Exec& exec, const Header& header, const MessageView& first,
                            const MessageView& second, const Codings& codings) {
  Workspace& scratch = *exec.device_workspace;
  const Codings exact = partial_codings(codings);
  const std::uint64_t count = header.count;
  MessageView sum{.header = header, .index = {}, .value = {}, .format = exact.value, .coded = {}};
  sum.header.flags |= first.header.flags | second.header.flags;
  const std::uint64_t room = header.k < count ? header.k : 2 * count;
  const auto index = scratch.take<std::uint32_t>(room);
  const auto value = scratch.take<float>(room);
  const auto all = scratch.take<float>(header.k < count ? 0 : count);
  const auto not_finite = scratch.take<std::uint32_t>(1);  // as much whatever the sum is
  std::array<Term, 2> terms = {};
  std::size_t term_count = 0;
  if (!first.carries_all() && !second.carries_all()) {
    merge_lists(exec, first, second, index, value, sum);
    if (shortest_k(count, sum.header.k, exact) != count) return sum;
    terms[term_count++] = term(sum);
  } else {
    terms[term_count++] = term(first);
    terms[term_count++] = term(second);
  }
  kernels::zero(exec, std::as_writable_bytes(not_finite));
  kernels::ordered_sum(
      exec,
      {.terms = {std::span(terms).first(term_count)}, .sum = all, .not_finite = not_finite.data()});
  sum.header.k = count;
  sum.index = {};
  sum.value = all;
  return sum;
}

void pack_on_device(const Exec& exec, MessageView& sum, std::span<std::byte> out,
                    const Codings& written) {
  const Header& header = sum.header;
  const auto message = out.first(message_bytes(header.count, header.k, written));
  const auto value_part = lay_out(header.count, header.k, message, written).value_part;
  const auto values = sum.coded.empty() ? std::as_bytes(sum.value) : sum.coded;
  kernels::copy(exec, value_part.first(values.size()), values);
  kernels::zero(exec, value_part.subspan(values.size()));
  seal_on_device(exec, header, sum.index, {}, message, written);
  sum.bytes = message;
}

}  // namespace winnow::compress
