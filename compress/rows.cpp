// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/rows.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>

#include "kernels/half.hpp"

namespace winnow::compress {
namespace {

/// A row that a caller gave: its local number, and which of those given it is.
struct Given {
  std::uint32_t local, number;
};

bool is_ascending(std::span<const Given> rows) {
  const auto not_below = [](const Given& a, const Given& b) { return a.local >= b.local; };
  return std::ranges::adjacent_find(rows, not_below) == rows.end();
}

/// The rows given, by owner, and there by local number; those of one row in the order given. Owner
/// o's are [begin[o], begin[o + 1]).
std::span<Given> sort_by_owner(const Exec& exec, std::span<const std::uint64_t> ids,
                               const RowPartition& rows, std::span<std::uint64_t> begin) {
  const auto sorted = exec.workspace->take<Given>(ids.size());
  std::ranges::fill(begin, 0);
  for (const std::uint64_t id : ids) ++begin[rows.owner(id)];
  std::uint64_t before = 0;
  for (std::uint64_t& at : begin) before += std::exchange(at, before);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    sorted[begin[rows.owner(ids[i])]++] = {rows.local(ids[i]), static_cast<std::uint32_t>(i)};
  }
  std::shift_right(begin.begin(), begin.end(), 1);
  begin.front() = 0;
  for (std::size_t owner = 0; owner + 1 < begin.size(); ++owner) {
    const auto of_owner = sorted.subspan(begin[owner], begin[owner + 1] - begin[owner]);
    if (is_ascending(of_owner)) continue;  // as a coalesced tensor's are
    std::ranges::sort(of_owner, std::less(),
                      [](const Given& row) { return std::uint64_t{row.local} << 32 | row.number; });
  }
  return sorted;
}

void widen_row(const Exec& exec, const ConstElements& row, std::span<float> out) {
  if (row.type() == ElementType::float32) {
    std::ranges::copy(row.as<float>(), out.begin());
  } else {
    kernels::widen(exec, row.type(), row.halves(), out);
  }
}

const Codings kNoValues = Codings{}.without_values();

Header of_support(const RowMessage& message, std::uint64_t k) {
  Header header = message.header;
  header.kind = Header::Kind::support;
  header.count = message.count;
  header.k = k;
  return header;
}

Header of_values(const RowMessage& message, std::uint64_t values) {
  Header header = message.header;
  header.kind = message.kind;
  header.count = header.k = values;
  return header;
}

}  // namespace

RowsByOwner share_out_rows(const Exec& exec, std::span<const std::uint64_t> ids,
                           const ConstElements& values, std::uint64_t width,
                           const RowPartition& rows) {
  Workspace& workspace = *exec.workspace;
  const auto lists = workspace.take<RowList>(rows.owners());
  const auto local = workspace.take<std::uint32_t>(ids.size());
  const auto floats = workspace.take<float>(ids.size() * width);
  const Workspace::Scope scope(workspace);
  const auto row = workspace.take<float>(width);
  const auto begin = workspace.take<std::uint64_t>(rows.owners() + std::size_t{1});
  const auto sorted = sort_by_owner(exec, ids, rows, begin);
  std::size_t count = 0;
  for (std::uint32_t owner = 0; owner < rows.owners(); ++owner) {
    const std::size_t first = count;
    for (std::size_t i = begin[owner]; i < begin[owner + 1]; ++i) {
      const ConstElements given = values.subspan(sorted[i].number * width, width);
      if (count > first && local[count - 1] == sorted[i].local) {
        widen_row(exec, given, row);
        add_row(floats.subspan((count - 1) * width, width), row);
      } else {
        widen_row(exec, given, floats.subspan(count * width, width));
        local[count++] = sorted[i].local;
      }
    }
    lists[owner] = {local.subspan(first, count - first),
                    floats.subspan(first * width, (count - first) * width)};
  }
  return {lists, floats.first(count * width)};
}

void add_row(std::span<float> sum, std::span<const float> row) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += row[i];
}

RowSums add_rows(const Exec& exec, std::span<const RowList> lists, std::uint64_t width) {
  std::size_t most = 0;
  for (const RowList& list : lists) most += list.local.size();
  const auto local = exec.workspace->take<std::uint32_t>(most);
  const auto sums = exec.workspace->take<float>(most * width);
  std::size_t count = 0;
  const auto size = [&](std::size_t list) { return lists[list].local.size(); };
  const auto key = [&](std::size_t list, std::size_t i) { return lists[list].local[i]; };
  merge_lists(exec, lists.size(), size, key, [&](std::size_t list, std::size_t i) {
    const std::uint32_t row = lists[list].local[i];
    if (count == 0 || local[count - 1] != row) {
      local[count] = row;
      std::ranges::fill(sums.subspan(count++ * width, width), 0.0F);
    }
    add_row(sums.subspan((count - 1) * width, width), lists[list].values.subspan(i * width, width));
  });
  return {local.first(count), sums.first(count * width)};
}

RowFormat exact_rows(ElementType type) {
  std::string_view name = "float32";
  if (type == ElementType::bf16) name = "bf16";
  if (type == ElementType::fp16) name = "fp16";
  const auto codings = kernels::value_codings();
  const auto coding = std::ranges::find(codings, name, &kernels::ValueCoding::name);
  return {.type = type, .value = {.coding = &*coding}};
}

RowMessage::Shapes RowMessage::shape(std::uint64_t k) const {
  return {.support = shape_of(count, k, kNoValues),
          .values = shape_of(k * width, k * width, {.value = format.value})};
}

void encode_rows(const Exec& exec, const RowMessage& message, std::span<const std::uint32_t> local,
                 std::span<float> values, const kernels::RandomKey& random,
                 std::span<std::byte> out) {
  const auto [support, coded] = message.shape(local.size());
  (void)finish_message(exec, of_support(message, local.size()), support, local,
                       out.first(support.bytes()), kNoValues);
  const auto rest = out.subspan(support.bytes());
  const auto value_part = lay_out(coded, rest).value_part;
  if (message.format.is_lossy) {
    kernels::quantize(exec, message.format.value, random, values, value_part);
  } else if (message.format.type == ElementType::float32) {
    std::ranges::copy(std::as_bytes(values), value_part.begin());
  } else {
    auto* const halves = reinterpret_cast<std::uint16_t*>(value_part.data());
    kernels::narrow(exec, message.format.type, values, {halves, values.size()});
    std::ranges::fill(value_part.subspan(values.size() * sizeof(std::uint16_t)), std::byte{});
  }
  (void)finish_message(exec, of_values(message, values.size()), coded, {}, rest,
                       {.value = message.format.value});
}

ReceivedRows decode_rows(const Exec& exec, const RowMessage& message, std::uint64_t k, int sender,
                         std::span<const std::byte> bytes) {
  const auto [support, coded] = message.shape(k);
  const MessageView rows = decode(exec, bytes.first(support.bytes()),
                                  {of_support(message, k), support}, sender, kNoValues);
  const MessageView values =
      decode(exec, bytes.subspan(support.bytes()), {of_values(message, k * message.width), coded},
             sender, {.value = message.format.value});
  ReceivedRows received{
      .list = {rows.term.index, values.term.value},
      .value_part = values.bytes.last(coded.value_bytes),
      .flags = static_cast<std::uint16_t>(rows.header.flags | values.header.flags)};
  if (rows.carries_all()) {
    const auto local = exec.workspace->take<std::uint32_t>(k);
    std::iota(local.begin(), local.end(), 0U);
    received.list.local = local;
  }
  if (values.term.is_coded()) {
    const auto decoded = exec.workspace->take<float>(k * message.width);
    kernels::dequantize(exec, message.format.value, decoded.size(), values.term.coded, 0, decoded);
    received.list.values = decoded;
  }
  return received;
}

}  // namespace winnow::compress
