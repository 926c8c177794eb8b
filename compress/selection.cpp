// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/selection.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/exec/stopwatch.hpp"
#include "kernels/split.hpp"

namespace winnow::compress {
namespace {

/// Entries of one list sorted by owner, in order: those of owner o are [begin[o], begin[o + 1]).
struct ByOwner {
  std::span<std::uint32_t> begin;
  std::span<std::uint32_t> local;
  std::span<float> value;
};

ByOwner sort_by_owner(const Exec& exec, const Part& part, std::span<std::uint32_t> index,
                      std::span<float> value) {
  Workspace& workspace = *exec.workspace;
  const std::uint32_t owners = part.partition.owners();
  const auto begin = workspace.take<std::uint32_t>(owners + 1);
  if (owners == 1) {
    begin[0] = 0;
    begin[1] = static_cast<std::uint32_t>(index.size());
    return {begin, index, value};
  }
  const ByOwner sorted{begin, workspace.take<std::uint32_t>(part.k).first(index.size()),
                       workspace.take<float>(part.k).first(index.size())};
  workspace.reserve(kernels::split_scratch(exec, part.partition, part.k));
  kernels::split_by_owner(exec, {.list = {index, value},
                                 .partition = part.partition,
                                 .local = sorted.local,
                                 .value = sorted.value,
                                 .begin = sorted.begin});
  return sorted;
}

/// Elements on their way into a message of `header`, whose k they make.
struct Selected {
  Header header;
  kernels::RandomKey random;
  std::span<const std::uint32_t> index;
  std::span<float> value;  ///< what the coding misses is left here
};

/// Quantizes and seals one message. Returns it, the first bytes of `out`.
std::span<std::byte> seal_values(const Exec& exec, const Codings& codings, bool any_k,
                                 const Selected& selected, std::span<std::byte> out) {
  const auto& [given, random, index, value] = selected;
  Header header = given;
  header.k = any_k ? shortest_k(header.count, index.size(), codings) : index.size();
  const auto message = out.first(message_bytes(header.count, header.k, codings));
  const auto value_part = lay_out(header.count, header.k, message, codings).value_part;
  if (header.k == index.size()) {
    kernels::quantize(exec, codings.value, random, value, value_part);
    seal(exec, header, index, message, codings);
    return message;
  }
  const Workspace::Scope scope(*exec.workspace);
  const auto all = exec.workspace->take<float>(header.count);
  std::ranges::fill(all, 0.0F);
  for (std::size_t j = 0; j < index.size(); ++j) all[index[j]] = value[j];
  kernels::quantize(exec, codings.value, random, all, value_part);
  for (std::size_t j = 0; j < index.size(); ++j) value[j] = all[index[j]];
  seal(exec, header, {}, message, codings);
  return message;
}

/// Sees to it that seal_values and what follows it find room in every step.
void reserve(const Exec& exec, const Part& part, std::uint64_t count) {
  constexpr std::size_t kLine = 64;
  std::size_t bytes = part.k * sizeof(std::uint32_t) + part.pieces.size() * sizeof(Piece);
  if (part.any_k) bytes = std::max(bytes, count * sizeof(float));
  exec.workspace->reserve(bytes + kLine);
}

}  // namespace

std::size_t list_room(std::size_t count, std::size_t k) {
  return std::min(2 * k + kSpareCandidates, count);
}

std::uint64_t most_touched(const Part& part) {
  return std::min(part.partition.owners() * part.most_for(part.self),
                  part.partition.local_count(part.self));
}

kernels::OwnedSums take_list(Workspace& workspace, const Part& part, const Piece& piece,
                             std::size_t listed, std::uint64_t most) {
  kernels::OwnUnits own{.partition = &part.partition, .self = part.self, .base = piece.base};
  own.index = workspace.take<std::uint32_t>(listed);
  own.value = workspace.take<float>(listed);
  return {.own = own,
          .residual = piece.residual(),
          .begin = piece.own_begin,
          .count = piece.own_count,
          .most = std::min(most, piece.own_count)};
}

void seal_selected(const Exec& exec, const Codings& codings, const EncodeJob& job,
                   std::span<std::uint32_t> index, std::span<float> value, Outbox& out) {
  const kernels::Stopwatch watch(job.encode_seconds);
  const Part& part = job.part;
  const Workspace::Scope scope(*exec.workspace);
  const ByOwner sorted = sort_by_owner(exec, part, index, value);
  reserve(exec, part, part.count);
  Header header = job.header;
  if (!out.finite) header.flags |= Header::kPoison;
  for (std::uint32_t owner = 0; owner < part.partition.owners(); ++owner) {
    if (owner == part.self) continue;
    const std::size_t begin = sorted.begin[owner], size = sorted.begin[owner + 1] - begin;
    header.count = part.partition.local_count(owner);
    auto& message = out.messages[owner];
    const auto local = sorted.local.subspan(begin, size);
    const auto values = sorted.value.subspan(begin, size);
    kernels::RandomKey random = job.random;
    random.stage += owner;
    message = seal_values(exec, codings, part.any_k, {header, random, local, values}, message);
    if (codings.exact()) continue;
    // What the coding missed, as a message of its own to this rank.
    header.k = size;
    const MessageView missed{
        .header = header, .index = local, .value = values, .format = {}, .coded = {}};
    put_back(exec, part, owner, missed);
  }
}

std::span<std::byte> seal_selected_sums(const Exec& exec, const Codings& codings,
                                        const EncodeJob& job, std::span<const std::uint32_t> index,
                                        std::span<float> value, std::span<std::byte> out) {
  const kernels::Stopwatch watch(job.encode_seconds);
  Header header = job.header;
  header.count = job.part.partition.local_count(job.part.self);
  reserve(exec, job.part, header.count);
  return seal_values(exec, codings, job.part.any_k, {header, job.random, index, value}, out);
}

/// Contributions as lists by local number; those that carry every position are decoded. Takes the
/// same memory whether they do or not.
std::span<const kernels::Term> as_lists(const Exec& exec, const Part& part,
                                        std::span<const MessageView> contributions) {
  Workspace& workspace = *exec.workspace;
  const auto lists = workspace.take<kernels::Term>(contributions.size());
  const std::uint64_t count = part.partition.local_count(part.self);
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    const MessageView& message = contributions[rank];
    lists[rank] = {.index = message.index, .value = message.value};
    if (rank == part.self || part.most_for(part.self) < count) continue;
    const auto index = workspace.take<std::uint32_t>(count);
    const auto value = workspace.take<float>(count);
    if (!message.carries_all() || count == 0) continue;
    std::iota(index.begin(), index.end(), 0U);
    lists[rank].index = index;
    if (!message.value.empty()) continue;
    kernels::dequantize(exec, message.format, index.size(), message.coded, 0, value);
    lists[rank].value = value;
  }
  return lists;
}

}  // namespace winnow::compress
