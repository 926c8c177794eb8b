// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A gradient on its way into messages: error feedback and selection in one pass, then coding.
#include <algorithm>
#include <optional>

#include "compress/compressor.hpp"
#include "compress/lists.hpp"
#include "compress/support.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/index_coding.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/split.hpp"
#include "kernels/take.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::compress {

namespace {

using kernels::SelectResult;

/// Takes scratch for as much as can be chosen, but for the list.
Chosen take_chosen(const Exec& exec, const Part& part) {
  Workspace& scratch = kernels::scratch_of(exec);
  const std::uint32_t owners = part.partition.owners();
  Chosen chosen{.begin = exec.workspace->take<std::uint32_t>(owners + 1)};
  if (owners == 1) return chosen;
  chosen.device_begin = scratch.take<std::uint32_t>(owners + 1);
  chosen.local = scratch.take<std::uint32_t>(part.k);
  chosen.value = scratch.take<float>(part.k);
  return chosen;
}

void sort_by_owner(const Exec& exec, const Part& part, const List& list, Chosen& chosen) {
  const std::size_t size = list.index.size();
  chosen.list = {list.index, list.value};
  if (part.partition.owners() == 1) {
    chosen.begin[0] = 0;
    chosen.begin[1] = static_cast<std::uint32_t>(size);
    chosen.local = list.index;
    chosen.value = list.value;
  } else if (size == 0) {
    kernels::zero(exec, std::as_writable_bytes(chosen.device_begin));
  } else {
    kernels::split_by_owner(exec, {.list = chosen.list,
                                   .partition = part.partition,
                                   .local = chosen.local.first(size),
                                   .value = chosen.value.first(size),
                                   .begin = chosen.device_begin,
                                   .self = part.self});
  }
}

std::span<kernels::OwnedSums> take_own_lists(const Exec& exec, const Choice& choice,
                                             const Part& part) {
  const auto lists = exec.workspace->take<kernels::OwnedSums>(part.pieces.size());
  std::ranges::transform(part.pieces, lists.begin(), [&](const Piece& piece) {
    // No rank keeps more of a piece than it would if it owned nothing of it.
    const std::uint64_t most =
        part.partition.owners() * choice.selection->kept(choice.argument, piece.elements.size());
    return take_own_list(exec, part, piece, list_room(piece.own_count, piece.own_k), most);
  });
  return lists;
}

/// Makes sure that the passes, and what follows them, find their scratch.
void reserve_scratch(const Exec& exec, const Part& part, std::size_t feed_scratch) {
  constexpr std::size_t kLine = 64;
  std::size_t most = std::max(feed_scratch, kernels::split_scratch(exec, part.partition, part.k));
  if (part.variable_k) most = std::max(most, part.count * sizeof(float) + kLine);
  kernels::scratch_of(exec).reserve(most);
}

/// The passes over the pieces, which choose the list.
std::span<const FeedJob> take_feed_jobs(const Exec& exec, const Choice& choice,
                                        const EncodeJob& job, const Owned& owned, const List& list,
                                        kernels::Side side) {
  const Part& part = job.part;
  const auto jobs = exec.workspace->take<FeedJob>(part.pieces.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Piece& piece = part.pieces[i];
    const std::size_t k = part.variable_k ? part.k : piece.k;
    jobs[i] = {.argument = choice.argument,
               .spans = {piece.elements, piece.residual(), job.decay},
               .base = piece.base,
               .index = list.index.subspan(at, k),
               .value = list.value.subspan(at, k),
               .kept = list.size,
               .bounds = piece.state->bounds,
               .result = &owned.results[i],
               .side = side};
    jobs[i].spans.precondition = piece.precondition;
    if (piece.own_count > 0) jobs[i].spans.own = owned.listed[i].own;
    if (!part.variable_k) at += k;
  }
  return jobs;
}

/// Takes what the end of the call needs.
void take_owned_lists(const Exec& exec, const Choice& choice, const Part& part, Owned& owned) {
  Workspace& scratch = kernels::scratch_of(exec);
  owned.results = scratch.take<SelectResult>(2 * part.pieces.size());
  if (part.self == Part::kNobody) return;
  owned.listed = take_own_lists(exec, choice, part);
  owned.touched_counts = scratch.take<std::uint64_t>(part.pieces.size());
}

Chosen choose_elements(const Exec& exec, const Choice& choice, const Codings& codings,
                       const EncodeJob& job, EncodeResult& out) {
  const Part& part = job.part;
  const Selection& selection = *choice.selection;
  std::span<float> in_place;
  if (part.self == Part::kNobody && codings.exact() && !part.variable_k) {
    const Shape& shape = part.shapes.gradients.front();
    auto& message = out.messages.front();
    message = message.first(shape.bytes());
    in_place = lay_out(shape, message).floats(part.k);
  }
  List list = take_list(exec, part.k, part.variable_k, in_place);
  Chosen chosen = take_chosen(exec, part);
  const bool one_sign = codings.value.coding->one_sign;
  const auto jobs = take_feed_jobs(exec, choice, job, out.owned, list,
                                   one_sign ? part.side_of_call() : kernels::Side::both);
  reserve_scratch(exec, part, selection.feed_scratch(exec, jobs));

  selection.feed(exec, jobs);
  if (part.variable_k) shorten(exec, list);
  out.kept = list.index.size();
  const kernels::Stopwatch watch(job.encode_seconds);
  sort_by_owner(exec, part, list, chosen);
  return chosen;
}

void keep_sealed(EncodeResult& out, std::uint32_t owner, const MessageView& sealed) {
  out.messages[owner] = out.messages[owner].first(sealed.bytes.size());
  if (!out.opened.empty()) out.opened[owner] = sealed;
}

/// Messages to owners whose headers know their k: lists[owner], but for this rank's own.
void seal_together(const Exec& exec, const Codings& codings, const EncodeJob& job,
                   std::span<const SealList> lists, EncodeResult& out) {
  const auto for_each_owner = [&](const auto& each) {
    for (std::uint32_t owner = 0; owner < lists.size(); ++owner) {
      if (owner != job.part.self) each(owner);
    }
  };
  kernels::together(exec, [&] {
    for_each_owner([&](std::uint32_t owner) {
      const SealList& list = lists[owner];
      if (!codings.exact()) {
        code_values(exec, codings, list, out.messages[owner]);
        return;
      }
      const auto message = out.messages[owner].first(list.shape.bytes());
      const auto place = lay_out(list.shape, message).floats(list.header.k);
      if (place.data() != list.value.data()) kernels::copy(exec, place, list.value);
    });
  });
  kernels::together(exec, [&] {
    for_each_owner([&](std::uint32_t owner) {
      keep_sealed(out, owner, seal_coded(exec, codings, lists[owner], out.messages[owner]));
      if (codings.exact()) return;
      // The residuals, zero at these positions, keep what the coding misses.
      kernels::add_owned(
          exec, taken_job(job.part, out.owned, {owner, lists[owner].index, lists[owner].value}));
    });
  });
}

/// `lists`: room for one to each owner.
void seal_chosen(const Exec& exec, const Codings& codings, const EncodeJob& job,
                 const Chosen& chosen, std::span<SealList> lists, EncodeResult& out) {
  const Part& part = job.part;
  const auto results = out.owned.results.first(part.pieces.size());
  const kernels::Stopwatch watch(job.encode_seconds);
  const std::uint32_t owners = part.partition.owners();
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    lists[owner] = {};
    if (owner == part.self) continue;
    const std::size_t begin = chosen.begin[owner], size = chosen.begin[owner + 1] - begin;
    lists[owner] = {.header = part.of_owner(job.header, owner),
                    .shape = {},
                    .random = job.key_of(owner),
                    .index = chosen.local.subspan(begin, size),
                    .value = chosen.value.subspan(begin, size),
                    .poison = {.results = results},
                    .status = job.status};
    SealList& list = lists[owner];
    list.header.k = size;
    if (part.variable_k) continue;
    list.shape =
        part.knows_k ? part.shapes.gradients[owner] : shape_of(list.header.count, size, codings);
  }
  if (!part.variable_k) {
    seal_together(exec, codings, job, lists, out);
    return;
  }
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    if (owner == part.self) continue;
    const SealList& list = lists[owner];
    keep_sealed(out, owner, seal_variable(exec, codings, list, out.messages[owner]));
    if (codings.exact()) continue;
    kernels::add_owned(exec, taken_job(part, out.owned, {owner, list.index, list.value}));
  }
}

void encode_selected(const Exec& exec, const Choice& choice, const Codings& codings,
                     const EncodeJob& job, EncodeResult& out) {
  take_owned_lists(exec, choice, job.part, out.owned);
  std::optional<kernels::ScratchScope> scope;
  if (out.opened.empty()) scope.emplace(exec);  // else out.opened views the lists to the end
  const auto lists = exec.workspace->take<SealList>(job.part.partition.owners());
  const Chosen chosen = choose_elements(exec, choice, codings, job, out);
  if (job.part.partition.owners() > 1) {
    const kernels::Stopwatch watch(job.encode_seconds);
    kernels::read(exec, std::as_writable_bytes(chosen.begin), std::as_bytes(chosen.device_begin));
  }
  seal_chosen(exec, codings, job, chosen, lists, out);
}

/// At positions that all ranks draw.
void encode_drawn(const Exec& exec, const Codings& codings, const EncodeJob& job,
                  EncodeResult& out) {
  const Part& part = job.part;
  const std::uint32_t owners = part.partition.owners();
  const auto k_of = [&](std::uint32_t owner) {
    return part.owner_k.empty() ? part.k : part.owner_k[owner];
  };
  std::uint64_t sent = 0;
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    if (owner != part.self) sent += k_of(owner);
  }
  Workspace& scratch = kernels::scratch_of(exec);
  Owned& owned = out.owned;
  owned.results = scratch.take<kernels::SelectResult>(part.pieces.size());
  const std::uint64_t own_k = part.self == Part::kNobody ? 0 : k_of(part.self);
  const auto own_room = scratch.take<std::uint32_t>(own_k);
  owned.acc = scratch.take<float>(own_k);
  owned.not_finite = kernels::take_zeros<std::uint32_t>(exec, 2);
  std::optional<kernels::ScratchScope> scope;
  if (out.opened.empty()) scope.emplace(exec);  // else what is opened views positions to the end
  auto room = scratch.take<std::uint32_t>(sent);
  auto missed = scratch.take<float>(codings.exact() ? 0 : sent);
  const auto lists = exec.workspace->take<SealList>(owners);
  const auto draws = exec.workspace->take<kernels::DecodeJob>(owners);
  feed_back(exec, job, {}, owned.results);

  const kernels::Stopwatch watch(job.encode_seconds);
  std::size_t drawn = 0;
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    const bool own = owner == part.self;
    const std::uint64_t k = k_of(owner);
    const Shape& shape = part.shapes.gradients[owner];
    SealList& list = lists[owner] = {.header = part.of_owner(job.header, owner),
                                     .shape = shape,
                                     .random = job.key_of(owner),
                                     .index = {},
                                     .value = owned.acc,
                                     .poison = {.results = owned.results},
                                     .status = job.status};
    list.header.k = k;
    if (k != list.header.count) {
      draws[drawn] = drawing(codings, list.header, job.status, own ? own_room : room.first(k));
      list.index = draws[drawn++].index;
    }
    if (own) continue;
    room = room.subspan(k);
    auto& message = out.messages[owner];
    message = message.first(shape.bytes());
    if (codings.exact()) {
      list.value = lay_out(shape, message).floats(k);
    } else {
      list.value = missed.first(k);
      missed = missed.subspan(k);
    }
    out.kept += k;
  }
  if (part.self != Part::kNobody) owned.drawn = lists[part.self].index;
  if (drawn > 0) codings.index->decode(exec, draws.first(drawn));
  kernels::together(exec, [&] {
    for (std::uint32_t owner = 0; owner < owners; ++owner) {
      const SealList& list = lists[owner];
      kernels::take_owned(exec, taken_job(part, owned, {owner, list.index, list.value}),
                          list.value);
    }
  });
  seal_together(exec, codings, job, lists, out);
}

void encode_everything(const Exec& exec, const Codings& codings, const EncodeJob& job,
                       EncodeResult& out) {
  const Part& part = job.part;
  Owned& owned = out.owned;
  if (part.self != Part::kNobody) {
    owned.acc = kernels::scratch_of(exec).take<float>(part.partition.local_count(part.self));
  }
  owned.not_finite = kernels::take_zeros<std::uint32_t>(exec, 2);
  const kernels::ScratchScope scope(exec);
  const auto pieces = exec.workspace->take<kernels::FeedbackPiece>(part.pieces.size());
  std::ranges::transform(part.pieces, pieces.begin(), [](const Piece& piece) {
    return kernels::FeedbackPiece{piece.elements, piece.residual(), piece.base};
  });
  const std::uint32_t owners = part.partition.owners();
  const auto values = exec.workspace->take<std::span<std::byte>>(owners);
  for (std::uint32_t owner = 0; owner < owners; ++owner) {
    values[owner] = {};
    if (owner == part.self) continue;
    const Shape& shape = part.shapes.gradients[owner];
    auto& message = out.messages[owner];
    message = message.first(shape.bytes());
    values[owner] = lay_out(shape, message).value_part;
  }
  const auto acc_not_finite = owned.not_finite.first(1);
  kernels::feedback_quantize(exec, {.pieces = kernels::place<kernels::FeedbackPiece>(exec, pieces),
                                    .decay = job.decay,
                                    .partition = part.partition,
                                    .self = part.self,
                                    .format = codings.value,
                                    .key = job.random,
                                    .out = values,
                                    .own = owned.acc,
                                    .not_finite = acc_not_finite.data()});
  out.kept = part.k;
  const kernels::Stopwatch watch(job.encode_seconds);
  kernels::together(exec, [&] {
    for (std::uint32_t owner = 0; owner < owners; ++owner) {
      if (owner == part.self) continue;
      Header header = part.of_owner(job.header, owner);
      header.k = header.count;
      keep_sealed(out, owner,
                  seal(exec, header, part.shapes.gradients[owner], {}, out.messages[owner], codings,
                       {.words = acc_not_finite}, job.status));
    }
  });
}

}  // namespace

void Compressor::encode(const Exec& exec, const EncodeJob& job, EncodeResult& out) const {
  for (const Piece& piece : job.part.pieces) piece.state->mark_dirty();
  place_pieces(exec, job.part, out.owned);
  if (keeps_all()) {
    encode_everything(exec, codings_, job, out);
  } else if (draws()) {
    encode_drawn(exec, codings_, job, out);
  } else {
    encode_selected(exec, choice_, codings_, job, out);
  }
}

Chosen Compressor::choose(const Exec& exec, const EncodeJob& job, EncodeResult& out) const {
  WINNOW_EXPECTS(!knows_support(), name() + " leaves nothing to choose");
  for (const Piece& piece : job.part.pieces) piece.state->mark_dirty();
  place_pieces(exec, job.part, out.owned);
  take_owned_lists(exec, choice_, job.part, out.owned);
  return choose_elements(exec, choice_, codings_, job, out);
}

void Compressor::encode_chosen(const Exec& exec, const EncodeJob& job, const Chosen& chosen,
                               EncodeResult& out) const {
  const auto lists = exec.workspace->take<SealList>(job.part.partition.owners());
  seal_chosen(exec, codings_, job, chosen, lists, out);
}

}  // namespace winnow::compress
