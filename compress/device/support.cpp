// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/device/support.hpp"

#include <algorithm>

#include "compress/device/message.hpp"
#include "compress/device/owned.hpp"
#include "compress/device/partial.hpp"
#include "compress/selection.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/owned.hpp"
#include "kernels/select_sums.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::compress {
namespace {

using kernels::SelectResult;

/// Takes nothing out of a piece: residual = acc, and elements of `own` that reach its bound are
/// listed.
void feed_back(const Exec& exec, const EncodeJob& job, const Piece& piece,
               const kernels::OwnUnits& own, SelectResult* result) {
  Bounds* const bounds = piece.state->bounds;
  kernels::feedback_select(exec, {.spans = {piece.elements, piece.residual(), job.decay, own},
                                  .base = piece.base,
                                  .state = &bounds->bound,
                                  .result = result,
                                  .own_bound = &bounds->sum_bound.bound,
                                  .gradient_after = kernels::GradientAfter::unspecified});
  piece.state->soil();
}

/// Terms that name nothing, one for each owner.
kernels::PlacedTerms no_terms(const Exec& exec, std::size_t owners) {
  const auto terms = exec.workspace->take<kernels::Term>(owners);
  std::ranges::fill(terms, kernels::Term());
  return kernels::place_terms(exec, terms);
}

/// Codes values into a message that carries them all, and leaves what the coding misses.
void seal_values(const Exec& exec, const Codings& codings, const EncodeJob& job,
                 std::span<float> value, std::span<const std::uint32_t> not_finite,
                 std::span<std::byte> out) {
  Header header = job.header;
  header.count = header.k = value.size();
  kernels::quantize(exec, codings.value, job.random, value,
                    lay_out(header.count, header.k, out, codings).value_part);
  seal_on_device(exec, header, {}, {.words = not_finite}, out, codings);
}

}  // namespace

void select_on_device(const Exec& exec, const Compressor& compressor, const EncodeJob& job,
                      std::span<std::byte> out) {
  const Part& part = job.part;
  const bool everything = compressor.everything();
  Workspace& scratch = *exec.device_workspace;
  const Workspace::Scope scope(scratch);
  // Room for what any owner picks: which one this rank is changes from call to call.
  const std::size_t most = everything ? 0 : std::ranges::max(part.owner_k);
  const std::size_t picked = everything ? 0 : part.owner_k[part.self];
  const auto index = scratch.take<std::uint32_t>(most).first(picked);
  const auto value = scratch.take<float>(most).first(picked);
  const auto results = scratch.take<SelectResult>(2 * part.pieces.size());
  const auto touched_count = scratch.take<std::uint64_t>(1);
  const kernels::PlacedTerms terms = no_terms(exec, part.partition.owners());
  std::size_t at = 0, end = 0;
  for (const Piece& piece : part.pieces) {
    const Workspace::Scope of_piece(scratch);
    SelectResult* const fed = &results[end++];
    if (everything) {
      feed_back(exec, job, piece, {}, fed);
      continue;
    }
    const std::size_t most_own = part.most_owned(piece), most_k = compressor.kept(most_own);
    const auto own = take_list(scratch, part, piece, list_room(most_own, most_k), 0);
    auto largest = own;
    largest.count = most_own;
    scratch.reserve(
        std::max(kernels::feedback_select_scratch(exec, piece.elements.size(), 0),
                 kernels::select_sums_scratch(exec, largest, most_k, part.partition.owners())));
    feed_back(exec, job, piece, piece.own_count > 0 ? own.own : kernels::OwnUnits{}, fed);
    if (piece.own_k == 0) continue;
    kernels::select_sums(
        exec, {.owned = own,
               .fed = fed,
               .terms = terms,
               .out = {index.subspan(at, piece.own_k), value.subspan(at, piece.own_k), {}, {}},
               .touched_count = touched_count.data(),
               .state = &piece.state->bounds->sum_bound,
               .result = &results[end++]});
    at += piece.own_k;
  }
  const kernels::Stopwatch watch(job.encode_seconds);
  Header header = job.header;
  header.count = part.partition.local_count(part.self);
  header.k = part.owner_k[part.self];
  const Codings written = compressor.codings().without_values();
  seal_on_device(exec, header, index, {.results = results.first(end)}, out, written);
}

void take_on_device(const Exec& exec, const Codings& codings, const EncodeJob& job, Taken& taken,
                    std::span<std::byte> out) {
  const Workspace::Scope host_scope(*exec.workspace), scope(*exec.device_workspace);
  kernels::OwnedJob owned = taken_job(exec, job.part, taken);
  const auto missed = exec.device_workspace->take<float>(out.empty() ? 0 : taken.value.size());
  kernels::take_owned(exec, owned, taken.value);
  if (out.empty()) return;
  kernels::copy(exec, missed, taken.value);
  seal_values(exec, codings, job, missed, {}, out);
  owned.values.value = missed;
  kernels::store_owned(exec, owned);
}

void add_on_device(const Exec& exec, const Codings& codings, const EncodeJob& job,
                   std::span<const MessageView> terms, const Addition& out) {
  std::span<const std::uint32_t> not_finite;
  {
    const kernels::Stopwatch watch(job.add_seconds);
    const auto in_order = exec.workspace->take<kernels::Term>(terms.size());
    std::ranges::transform(terms, in_order.begin(), term);
    not_finite = sum_terms(exec, in_order, out.sum);
    if (out.message.empty()) return;
  }
  // Where the support is every position, gaps travel too, and a sign, say, is never 0.
  if (out.sum.size() == job.part.partition.local_count(job.part.self)) {
    clear_own_gaps(exec, job.part, out.sum);
  }
  const kernels::Stopwatch watch(job.encode_seconds);
  seal_values(exec, codings, job, out.sum, not_finite, out.message);
}

}  // namespace winnow::compress
