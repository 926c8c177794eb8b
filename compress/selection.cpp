// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/selection.hpp"

#include <algorithm>
#include <cstdint>

#include "compress/stopwatch.hpp"
#include "kernels/add_to.hpp"

namespace winnow::compress {
namespace {

/// Entries of one list sorted by owner, in order: those of owner o are [begin[o], begin[o + 1]).
struct ByOwner {
  std::span<std::size_t> begin;
  std::span<std::uint32_t> local;
  std::span<float> value;
};

ByOwner sort_by_owner(const Exec& exec, const kernels::Partition& partition,
                      std::span<std::uint32_t> index, std::span<float> value) {
  Workspace& workspace = *exec.workspace;
  const std::uint32_t owners = partition.owners();
  if (owners == 1) {
    const auto begin = workspace.take<std::size_t>(2);
    begin[0] = 0;
    begin[1] = index.size();
    return {begin, index, value};
  }
  const ByOwner sorted{workspace.take<std::size_t>(owners + 2),
                       workspace.take<std::uint32_t>(index.size()),
                       workspace.take<float>(index.size())};
  const auto owner = workspace.take<std::uint32_t>(index.size());
  std::ranges::fill(sorted.begin, 0);
  for (std::size_t j = 0; j < index.size(); ++j) {
    owner[j] = partition.owner_of_unit(index[j] / kernels::Partition::kUnit);
    ++sorted.begin[owner[j] + 2];
  }
  for (std::uint32_t o = 2; o < owners + 2; ++o) sorted.begin[o] += sorted.begin[o - 1];
  for (std::size_t j = 0; j < index.size(); ++j) {
    const std::size_t place = sorted.begin[owner[j] + 1]++;
    sorted.local[place] = static_cast<std::uint32_t>(partition.local(index[j]));
    sorted.value[place] = value[j];
  }
  return sorted;
}

/// Quantizes and seals one message.
void seal_values(const Exec& exec, const Codings& codings, const Header& header,
                 const kernels::RandomKey& random, std::span<const std::uint32_t> index,
                 std::span<float> value, std::span<std::byte> out) {
  const auto value_part = lay_out(header.count, header.k, out, codings).value_part;
  kernels::quantize(exec, codings.value, random, value, value_part);
  seal(exec, header, index, out, codings);
}

}  // namespace

void seal_selected(const Exec& exec, const Codings& codings, const EncodeJob& job,
                   std::span<std::uint32_t> index, std::span<float> value, Outbox& out) {
  const Stopwatch watch(job.encode_seconds);
  const Part& part = job.part;
  const Workspace::Scope scope(*exec.workspace);
  const ByOwner sorted = sort_by_owner(exec, part.partition, index, value);
  exec.workspace->reserve(index.size_bytes() + part.pieces.size() * sizeof(Piece));
  Header header = job.header;
  if (!out.finite) header.flags |= Header::kPoison;
  for (std::uint32_t owner = 0; owner < part.partition.owners(); ++owner) {
    if (owner == part.self) continue;
    const std::size_t begin = sorted.begin[owner], size = sorted.begin[owner + 1] - begin;
    header.count = part.partition.local_count(owner);
    header.k = size;
    auto& message = out.messages[owner];
    message = message.first(message_bytes(header.count, header.k, codings));
    const auto local = sorted.local.subspan(begin, size);
    const auto values = sorted.value.subspan(begin, size);
    kernels::RandomKey random = job.random;
    random.stage += owner;
    seal_values(exec, codings, header, random, local, values, message);
    if (codings.exact()) continue;
    // What the coding missed, as a message of its own to this rank.
    const MessageView missed{
        .header = header, .index = local, .value = values, .format = {}, .coded = {}};
    put_back(exec, part, owner, missed);
  }
}

void seal_selected_sums(const Exec& exec, const Codings& codings, const EncodeJob& job,
                        std::span<const std::uint32_t> index, std::span<float> value,
                        std::span<std::byte> out) {
  const Stopwatch watch(job.encode_seconds);
  Header header = job.header;
  header.count = job.part.partition.local_count(job.part.self);
  header.k = index.size();
  seal_values(exec, codings, header, job.random, index, value, out);
}

}  // namespace winnow::compress
