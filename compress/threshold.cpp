// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/threshold.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <winnow/error.hpp>

#include "compress/selection.hpp"
#include "kernels/exec/stopwatch.hpp"

namespace winnow::compress {
namespace {

class Threshold final : public Compressor {
 public:
  Threshold(float threshold, std::string selection, const Codings& codings)
      : Compressor(codings),
        bound_(std::nextafter(threshold, std::numeric_limits<float>::infinity())),
        selection_(std::move(selection)) {}

  bool everything() const override { return false; }
  bool any_k() const override { return true; }
  float bound() const override { return bound_; }
  std::uint64_t kept(std::uint64_t count) const override { return count; }

  void encode(const Exec& exec, const EncodeJob& job, Outbox& out) const override {
    const Part& part = job.part;
    Workspace& workspace = *exec.workspace;
    const bool shared = part.self != Part::kNobody;
    if (shared) {
      out.owned.listed = take_lists(workspace, part);
      out.owned.results = workspace.take<kernels::SelectResult>(part.pieces.size());
    }
    const Workspace::Scope scope(workspace);
    const auto index = workspace.take<std::uint32_t>(part.count);
    const auto value = workspace.take<float>(part.count);
    std::uint64_t kept = 0;
    for (std::size_t i = 0; i < part.pieces.size(); ++i) {
      const Piece& piece = part.pieces[i];
      kernels::FeedbackSpans spans{piece.elements, piece.residual(), job.decay};
      if (shared) spans.own = out.owned.listed[i].own;
      kernels::SelectResult result{};
      kernels::feedback_threshold(exec, {.spans = spans,
                                         .base = piece.base,
                                         .bound = bound_,
                                         .index = index,
                                         .value = value,
                                         .kept = &kept,
                                         .result = &result});
      if (shared) out.owned.results[i] = result;
      out.finite = out.finite && result.finite;
      piece.state->soil();
    }
    out.kept = kept;
    seal_selected(exec, codings(), job, index.first(kept), value.first(kept), out);
  }

  std::span<std::byte> encode_sums(const Exec& exec, const EncodeJob& job,
                                   std::span<const MessageView> contributions, Owned& owned,
                                   std::span<std::byte> out) const override {
    const Part& part = job.part;
    Workspace& workspace = *exec.workspace;
    const std::uint64_t count = part.partition.local_count(part.self);
    const auto index = workspace.take<std::uint32_t>(count);
    const auto value = workspace.take<float>(count);
    const auto touched = workspace.take<std::uint32_t>(count);
    const auto sum = workspace.take<float>(count);
    const Workspace::Scope scope(workspace);
    const auto terms = as_lists(exec, part, contributions);
    EncodeJob sealed = job;
    std::uint64_t kept = 0, touched_end = 0;
    {
      const kernels::Stopwatch watch(job.add_seconds);
      for (std::size_t i = 0; i < part.pieces.size(); ++i) {
        const std::uint64_t size = part.pieces[i].own_count;
        if (size == 0) continue;
        std::uint64_t touched_count = 0;
        kernels::SelectResult result{};
        kernels::keep_sums(exec, {.owned = owned.listed[i],
                                  .fed = &owned.results[i],
                                  .terms = {terms},
                                  .out = {index, value, touched.subspan(touched_end, size),
                                          sum.subspan(touched_end, size)},
                                  .kept = &kept,
                                  .touched_count = &touched_count,
                                  .result = &result});
        if (!result.finite) sealed.header.flags |= Header::kPoison;
        touched_end += touched_count;
      }
    }
    owned.touched = {touched.first(touched_end), sum.first(touched_end)};
    owned.chosen = {index.first(kept), value.first(kept)};
    return seal_selected_sums(exec, codings(), sealed, owned.chosen.index, value.first(kept), out);
  }

  void select(const Exec&, const EncodeJob&, std::span<std::byte>) const override {
    fail_usage(name() + " picks no support of a known size; take topk");
  }

 protected:
  std::string selection() const override { return selection_; }

 private:
  /// Room for all of this rank's own elements: any number of them may reach the bound.
  std::span<kernels::OwnedSums> take_lists(Workspace& workspace, const Part& part) const {
    const auto lists = workspace.take<kernels::OwnedSums>(part.pieces.size());
    for (std::size_t i = 0; i < lists.size(); ++i) {
      const Piece& piece = part.pieces[i];
      kernels::OwnUnits own{
          .partition = &part.partition, .self = part.self, .base = piece.base, .bound = bound_};
      own.index = workspace.take<std::uint32_t>(piece.own_count);
      own.value = workspace.take<float>(piece.own_count);
      lists[i] = {.own = own,
                  .residual = piece.residual(),
                  .begin = piece.own_begin,
                  .count = piece.own_count,
                  .most = piece.own_count};
    }
    return lists;
  }

  float bound_;  // the least magnitude above T
  std::string selection_;
};

}  // namespace

std::unique_ptr<Compressor> make_threshold(std::string_view argument, const Codings& codings) {
  float threshold = 0;
  const auto [end, error] =
      std::from_chars(argument.data(), argument.data() + argument.size(), threshold);
  if (!argument.empty() && (error != std::errc() || end != argument.data() + argument.size() ||
                            !(threshold >= 0) || !std::isfinite(threshold))) {
    fail_usage(
        "threshold takes what magnitudes have to exceed, 0 or more, such as "
        "threshold:0.001, not '" +
        std::string(argument) + "'");
  }
  WINNOW_EXPECTS(codings.value.coding->name != "sign",
                 "threshold takes no sign values: a sign is never 0, as elements that are not kept "
                 "are where a message carries every position");
  std::array<char, 32> text;
  std::string selection = "threshold:";
  selection.append(text.data(), std::to_chars(text.begin(), text.end(), threshold).ptr);
  return std::make_unique<Threshold>(threshold, std::move(selection), codings);
}

}  // namespace winnow::compress
