// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/device/selection.hpp"

#include <algorithm>

#include "compress/device/message.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/take.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::compress {
namespace {

using kernels::GradientAfter;

std::size_t scratch_of(const Exec& exec, const Part& part, const Piece& piece) {
  const std::size_t count = piece.elements.size();
  return part.any_k ? kernels::feedback_threshold_scratch(exec, count)
                    : kernels::feedback_select_scratch(exec, count, piece.k);
}

}  // namespace

DeviceSelection take_selection(const Exec& exec, const Part& part, std::uint64_t most,
                               std::span<float> place) {
  Workspace& scratch = *exec.device_workspace;
  return {.index = scratch.take<std::uint32_t>(most),
          .value = place.empty() ? scratch.take<float>(most) : place,
          .count = kernels::take_zeros<std::uint64_t>(exec, part.any_k ? 1 : 0)};
}

void reserve_passes(const Exec& exec, const Part& part) {
  // A message of any k may have to carry every position.
  std::size_t most = part.any_k ? part.count * sizeof(float) : 0;
  for (const Piece& piece : part.pieces) most = std::max(most, scratch_of(exec, part, piece));
  exec.device_workspace->reserve(most);
}

void select_pieces(const Exec& exec, const EncodeJob& job, std::span<const kernels::OwnedSums> own,
                   std::span<kernels::SelectResult> results, DeviceSelection& selection) {
  const Part& part = job.part;
  reserve_passes(exec, part);
  std::size_t at = 0;
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    const Piece& piece = part.pieces[i];
    kernels::FeedbackSpans spans{piece.elements, piece.residual(), job.decay};
    if (piece.own_count > 0) spans.own = own[i].own;
    if (part.any_k) {
      kernels::feedback_threshold(exec, {.spans = spans,
                                         .base = piece.base,
                                         .bound = part.bound,
                                         .index = selection.index,
                                         .value = selection.value,
                                         .kept = selection.count.data(),
                                         .result = &results[i],
                                         .gradient_after = GradientAfter::unspecified});
      continue;
    }
    Bounds* const bounds = piece.state->bounds;
    kernels::feedback_select(exec, {.spans = spans,
                                    .base = piece.base,
                                    .index = selection.index.subspan(at, piece.k),
                                    .value = selection.value.subspan(at, piece.k),
                                    .state = &bounds->bound,
                                    .result = &results[i],
                                    .own_bound = &bounds->sum_bound.bound,
                                    .gradient_after = GradientAfter::unspecified});
    at += piece.k;
  }
  if (part.any_k) await_selection(exec, selection);
}

void await_selection(const Exec& exec, DeviceSelection& selection) {
  std::uint64_t count = 0;
  kernels::read(exec, std::as_writable_bytes(std::span(&count, 1)), std::as_bytes(selection.count));
  selection.index = selection.index.first(count);
  selection.value = selection.value.first(count);
}

MessageView seal_selection(const Exec& exec, const Codings& codings, const Part& part,
                           const DeviceSelected& selected, std::span<std::byte> out) {
  const auto& [given, random, index, value, poison, verdict] = selected;
  Header header = given;
  header.k = part.any_k ? shortest_k(header.count, index.size(), codings) : index.size();
  const auto message = out.first(message_bytes(header.count, header.k, codings));
  const auto value_part = lay_out(header.count, header.k, message, codings).value_part;
  if (header.k == index.size()) {
    const bool in_place = std::as_bytes(value).data() == value_part.data();
    if (!in_place) kernels::quantize(exec, codings.value, random, value, value_part);
    return seal_on_device(exec, header, index, poison, message, codings, verdict);
  }
  const Workspace::Scope scope(*exec.device_workspace);
  const auto all = exec.device_workspace->take<float>(header.count);
  kernels::zero(exec, std::as_writable_bytes(all));
  kernels::put(exec, all, 0, {index, value});
  kernels::quantize(exec, codings.value, random, all, value_part);
  kernels::take(exec, all, 0, index, value);
  return seal_on_device(exec, header, {}, poison, message, codings, verdict);
}

}  // namespace winnow::compress
