// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/partial.hpp"

#include <algorithm>
#include <array>

#include "kernels/merge.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::compress {

Codings partial_codings(const Codings& codings) {
  return {.index = codings.index};
}

std::size_t partial_bytes(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  const Codings exact = partial_codings(codings);
  return message_bytes(count, shortest_k(count, k, exact), exact);
}

Header partial_header(const Header& header, int ranks, const Codings& codings) {
  if (ranks == 1) return header;
  Header partial = header;
  partial.kind = Header::Kind::partial;
  const std::uint64_t most = std::min(static_cast<std::uint64_t>(ranks) * header.k, header.count);
  partial.k = shortest_k(header.count, most, partial_codings(codings));
  return partial;
}

std::size_t most_bytes(const Header& header, const Codings& codings) {
  return header.kind == Header::Kind::partial ? partial_bytes(header.count, header.k, codings)
                                              : message_bytes(header.count, header.k, codings);
}

MessageView merge(const Exec& exec, const Header& header, const MessageView& first,
                  const MessageView& second, const Codings& codings) {
  Workspace& workspace = *exec.workspace;
  const Codings exact = partial_codings(codings);
  const std::uint64_t count = header.count;
  MessageView sum{.header = header, .index = {}, .value = {}, .format = exact.value, .coded = {}};
  sum.header.flags |= first.header.flags | second.header.flags;
  // Two lists are merged before it is known how long their union is.
  const std::uint64_t room = header.k < count ? header.k : 2 * count;
  const auto index = workspace.take<std::uint32_t>(room);
  const auto value = workspace.take<float>(room);
  const auto all = workspace.take<float>(header.k < count ? 0 : count);
  std::array terms{term(first), term(second)};
  if (!first.carries_all() && !second.carries_all()) {
    kernels::merge(exec, {.first = {first.index, first.value},
                          .second = {second.index, second.value},
                          .index = index,
                          .value = value,
                          .size = &sum.header.k});
    sum.index = index.first(sum.header.k);
    sum.value = value.first(sum.header.k);
    if (shortest_k(count, sum.header.k, exact) != count) return sum;
    terms = {term(sum), {}};
  }
  // What is not finite is found in the result.
  kernels::ordered_sum(exec, {.terms = {terms}, .sum = all});
  sum.header.k = count;
  sum.index = {};
  sum.value = all;
  return sum;
}

void pack(const Exec& exec, MessageView& sum, std::span<std::byte> out, const Codings& codings) {
  const Header& header = sum.header;
  const bool partial = header.kind == Header::Kind::partial;
  const Codings written = partial ? partial_codings(codings) : codings;
  const auto message = out.first(message_bytes(header.count, header.k, written));
  const auto value_part = lay_out(header.count, header.k, message, written).value_part;
  const auto values = sum.coded.empty() ? std::as_bytes(sum.value) : sum.coded;
  const auto padding = value_part.subspan(values.size());
  std::ranges::copy(values, value_part.begin());
  std::ranges::fill(padding, std::byte{0});
  seal(exec, header, sum.index, message, written);
  sum.bytes = message;
}

}  // namespace winnow::compress
