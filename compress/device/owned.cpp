// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/device/owned.hpp"

#include <algorithm>

#include "compress/device/message.hpp"
#include "compress/device/selection.hpp"
#include "compress/selection.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/owned.hpp"
#include "kernels/split.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::compress {
namespace {

using kernels::SelectResult;
using kernels::SparseView;

std::span<kernels::OwnedSums> take_lists(const Exec& exec, const Part& part) {
  const auto lists = exec.workspace->take<kernels::OwnedSums>(part.pieces.size());
  const std::uint64_t most = most_touched(part);
  std::ranges::transform(part.pieces, lists.begin(), [&](const Piece& piece) {
    return take_list(*exec.device_workspace, part, piece, list_room(piece.own_count, piece.own_k),
                     most);
  });
  for (kernels::OwnedSums& list : lists) list.own.bound = part.bound;
  return lists;
}

/// A list by owner: entries [begin[o], begin[o + 1]) are those of owner o.
struct ByOwner {
  std::span<std::uint32_t> begin;  ///< in host memory
  std::span<std::uint32_t> local, begin_there;
  std::span<float> value;
};

/// Room for it and for split, which is taken before anything is taken from a gradient.
ByOwner take_by_owner(const Exec& exec, const Part& part) {
  Workspace& scratch = *exec.device_workspace;
  const std::size_t ends = part.partition.owners() + 1;
  const ByOwner sorted{.begin = exec.workspace->take<std::uint32_t>(ends),
                       .local = scratch.take<std::uint32_t>(part.k),
                       .begin_there = scratch.take<std::uint32_t>(ends),
                       .value = scratch.take<float>(part.k)};
  scratch.reserve(kernels::split_scratch(exec, part.partition, part.k));
  return sorted;
}

void split(const Exec& exec, const Part& part, const SparseView& list, const ByOwner& sorted) {
  std::ranges::fill(sorted.begin, 0);
  if (list.index.empty()) return;
  kernels::split_by_owner(exec, {.list = list,
                                 .partition = part.partition,
                                 .local = sorted.local.first(list.index.size()),
                                 .value = sorted.value.first(list.index.size()),
                                 .begin = sorted.begin_there});
  kernels::read(exec, std::as_writable_bytes(sorted.begin), std::as_bytes(sorted.begin_there));
}

}  // namespace

void encode_selected_by_owner(const Exec& exec, const Codings& codings, const EncodeJob& job,
                              Outbox& out) {
  const Part& part = job.part;
  Workspace& scratch = *exec.device_workspace;
  Owned& owned = out.owned;
  owned.listed = take_lists(exec, part);
  owned.device.residuals = place_residuals(exec, part);
  owned.results = scratch.take<SelectResult>(2 * part.pieces.size());
  owned.device.touched_counts = scratch.take<std::uint64_t>(part.pieces.size());
  const auto results = owned.results.first(part.pieces.size());
  const Workspace::Scope scope(scratch);
  DeviceSelection selection = take_selection(exec, part, part.k);
  const ByOwner sorted = take_by_owner(exec, part);
  select_pieces(exec, job, owned.listed, results, selection);
  out.kept = selection.index.size();
  const kernels::Stopwatch watch(job.encode_seconds);
  split(exec, part, {selection.index, selection.value}, sorted);
  Header header = job.header;
  for (std::uint32_t owner = 0; owner < part.partition.owners(); ++owner) {
    if (owner == part.self) continue;
    const std::size_t begin = sorted.begin[owner];
    header.count = part.partition.local_count(owner);
    const std::size_t size = sorted.begin[owner + 1] - begin;
    const auto local = sorted.local.subspan(begin, size);
    const auto values = sorted.value.subspan(begin, size);
    kernels::RandomKey random = job.random;
    random.stage += owner;
    std::span<std::byte>& message = out.messages[owner];
    const MessageView sealed = seal_selection(
        exec, codings, part, {header, random, local, values, {.results = results}}, message);
    message = message.first(sealed.bytes.size());
    if (codings.exact()) continue;
    kernels::add_owned(exec, {.partition = part.partition,
                              .owner = owner,
                              .pieces = owned.device.residuals,
                              .values = {.index = local, .value = values}});
  }
}

void encode_everything_by_owner(const Exec& exec, const Codings& codings, const EncodeJob& job,
                                Outbox& out) {
  const Part& part = job.part;
  Workspace& scratch = *exec.device_workspace;
  Owned& owned = out.owned;
  owned.acc = scratch.take<float>(part.partition.local_count(part.self));
  owned.device.residuals = place_residuals(exec, part);
  owned.device.not_finite = kernels::take_zeros<std::uint32_t>(exec, 2);
  const auto pieces = exec.workspace->take<kernels::FeedbackPiece>(part.pieces.size());
  std::ranges::transform(part.pieces, pieces.begin(), [](const Piece& piece) {
    return kernels::FeedbackPiece{piece.elements, piece.residual(), piece.base};
  });
  const std::uint32_t owners = part.partition.owners();
  const auto values = exec.workspace->take<std::span<std::byte>>(owners);
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    values[owner] = {};
    if (owner == part.self) continue;
    const std::uint64_t count = part.partition.local_count(owner);
    std::span<std::byte>& message = out.messages[owner];
    message = message.first(message_bytes(count, count, codings));
    values[owner] = lay_out(count, count, message, codings).value_part;
  }
  const Workspace::Scope scope(scratch);
  const auto poison = owned.device.not_finite.first(1);
  kernels::feedback_quantize(exec, {.pieces = kernels::place<kernels::FeedbackPiece>(exec, pieces),
                                    .decay = job.decay,
                                    .partition = part.partition,
                                    .self = part.self,
                                    .format = codings.value,
                                    .key = job.random,
                                    .out = values,
                                    .own = owned.acc,
                                    .not_finite = poison.data()});
  const kernels::Stopwatch watch(job.encode_seconds);
  Header header = job.header;
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    if (owner == part.self) continue;
    header.count = header.k = part.partition.local_count(owner);
    seal_on_device(exec, header, {}, {.words = poison}, out.messages[owner], codings);
  }
}

}  // namespace winnow::compress
