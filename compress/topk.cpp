// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/topk.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <winnow/error.hpp>

#include "compress/none.hpp"
#include "compress/selection.hpp"
#include "compress/support.hpp"
#include "kernels/exec/stopwatch.hpp"

namespace winnow::compress {
namespace {

std::span<kernels::OwnedSums> take_lists(Workspace& workspace, const Part& part) {
  const auto lists = workspace.take<kernels::OwnedSums>(part.pieces.size());
  const std::uint64_t most = most_touched(part);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const Piece& piece = part.pieces[i];
    const kernels::SelectBound& bound = piece.state->bounds->sum_bound;
    lists[i] = take_list(workspace, part, piece, list_room(piece.own_count, piece.own_k), most);
    if (piece.own_k > 0 && bound.k == piece.own_k) lists[i].own.bound = bound.bound;
  }
  return lists;
}

class TopK final : public Compressor {
 public:
  TopK(double density, std::string selection, const Codings& codings)
      : Compressor(codings), density_(density), selection_(std::move(selection)) {}

  bool everything() const override { return false; }

  std::uint64_t kept(std::uint64_t count) const override {
    if (count == 0) return 0;
    // A density written in decimal is rarely a double: 0.07 * 100 is a little over 7, and must
    // keep 7. One part in 10^12 is far below one element and far above the rounding.
    const double exact = density_ * static_cast<double>(count) * (1 - 1e-12);
    return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::ceil(exact)), 1, count);
  }

  void encode(const Exec& exec, const EncodeJob& job, Outbox& out) const override {
    const Part& part = job.part;
    const bool shared = part.self != Part::kNobody;
    if (shared) {
      out.owned.listed = take_lists(*exec.workspace, part);
      out.owned.results = exec.workspace->take<kernels::SelectResult>(part.pieces.size());
    }
    const Workspace::Scope scope(*exec.workspace);
    const auto index = exec.workspace->take<std::uint32_t>(part.k);
    const auto value = exec.workspace->take<float>(part.k);
    std::size_t at = 0;
    for (std::size_t i = 0; i < part.pieces.size(); ++i) {
      const Piece& piece = part.pieces[i];
      kernels::FeedbackSpans spans{piece.elements, piece.residual(), job.decay};
      if (shared) spans.own = out.owned.listed[i].own;
      kernels::SelectResult result{};
      kernels::feedback_select(exec, {.spans = spans,
                                      .base = piece.base,
                                      .index = index.subspan(at, piece.k),
                                      .value = value.subspan(at, piece.k),
                                      .state = &piece.state->bounds->bound,
                                      .result = &result});
      if (shared) out.owned.results[i] = result;
      out.finite = out.finite && result.finite;
      piece.state->soil();
      at += piece.k;
    }
    out.kept = part.k;
    seal_selected(exec, codings(), job, index, value, out);
  }

  std::span<std::byte> encode_sums(const Exec& exec, const EncodeJob& job,
                                   std::span<const MessageView> contributions, Owned& owned,
                                   std::span<std::byte> out) const override {
    const Part& part = job.part;
    Workspace& workspace = *exec.workspace;
    const std::uint64_t most = most_touched(part);
    const auto index = workspace.take<std::uint32_t>(part.owner_k[part.self]);
    const auto value = workspace.take<float>(index.size());
    const auto touched = workspace.take<std::uint32_t>(most);
    const auto sum = workspace.take<float>(most);
    const Workspace::Scope scope(workspace);
    const auto terms = as_lists(exec, part, contributions);
    EncodeJob sealed = job;
    std::size_t at = 0, end = 0;
    {
      const kernels::Stopwatch watch(job.add_seconds);
      for (std::size_t i = 0; i < part.pieces.size(); ++i) {
        const Piece& piece = part.pieces[i];
        if (piece.own_k == 0) continue;
        const std::size_t room = std::min<std::size_t>(most - end, piece.own_count);
        std::uint64_t touched_count = 0;
        kernels::SelectResult summed{};
        kernels::select_sums(
            exec, {.owned = owned.listed[i],
                   .fed = &owned.results[i],
                   .terms = {terms},
                   .out = {index.subspan(at, piece.own_k), value.subspan(at, piece.own_k),
                           touched.subspan(end, room), sum.subspan(end, room)},
                   .touched_count = &touched_count,
                   .state = &piece.state->bounds->sum_bound,
                   .result = &summed});
        if (!summed.finite) sealed.header.flags |= Header::kPoison;
        at += piece.own_k;
        end += touched_count;
      }
    }
    owned.touched = {touched.first(end), sum.first(end)};
    owned.chosen = {index, value};
    return seal_selected_sums(exec, codings(), sealed, index, value, out);
  }

  void select(const Exec& exec, const EncodeJob& job, std::span<std::byte> out) const override {
    const Part& part = job.part;
    Workspace& workspace = *exec.workspace;
    const Workspace::Scope scope(workspace);
    // Room for what any owner picks: which one this rank is changes from call to call.
    const std::size_t most = std::ranges::max(part.owner_k);
    const auto index = workspace.take<std::uint32_t>(most).first(part.owner_k[part.self]);
    const auto value = workspace.take<float>(most).first(index.size());
    const auto nothing = workspace.take<kernels::Term>(part.partition.owners());
    std::ranges::fill(nothing, kernels::Term());
    EncodeJob sealed = job;
    std::size_t at = 0;
    for (const Piece& piece : part.pieces) {
      const Workspace::Scope of_piece(workspace);
      const std::size_t most_own = part.most_owned(piece), most_k = kept(most_own);
      auto own = take_list(workspace, part, piece, list_room(most_own, most_k), 0);
      auto largest = own;
      largest.count = most_own;
      workspace.reserve(
          kernels::select_sums_scratch(exec, largest, most_k, part.partition.owners()));
      kernels::SelectBound& bound = piece.state->bounds->sum_bound;
      if (bound.k > 0) own.own.bound = bound.bound;  // turns differ in k by a few elements
      kernels::SelectResult result{};
      kernels::feedback_select(exec,
                               {.spans = {piece.elements, piece.residual(), job.decay, own.own},
                                .base = piece.base,
                                .state = &piece.state->bounds->bound,
                                .result = &result});
      piece.state->soil();
      if (!result.finite) sealed.header.flags |= Header::kPoison;
      if (piece.own_k == 0) continue;
      std::uint64_t touched_count = 0;
      kernels::SelectResult picked{};
      kernels::select_sums(
          exec, {.owned = own,
                 .fed = &result,
                 .terms = {nothing},
                 .out = {index.subspan(at, piece.own_k), value.subspan(at, piece.own_k), {}, {}},
                 .touched_count = &touched_count,
                 .state = &bound,
                 .result = &picked});
      at += piece.own_k;
    }
    seal_support(exec, codings(), sealed, index, out);
  }

 protected:
  std::string selection() const override { return selection_; }

 private:
  double density_;
  std::string selection_;
};

}  // namespace

std::unique_ptr<Compressor> make_topk(std::string_view argument, const Codings& codings) {
  double density = 0;
  const auto [end, error] =
      std::from_chars(argument.data(), argument.data() + argument.size(), density);
  if (error != std::errc() || end != argument.data() + argument.size() || !(density > 0) ||
      density > 1) {
    fail_usage("topk takes a density above 0 and at most 1, such as topk:0.01, not '" +
               std::string(argument) + "'");
  }
  std::array<char, 32> text;
  std::string selection = "topk:";
  selection.append(text.data(), std::to_chars(text.begin(), text.end(), density).ptr);
  if (density == 1) return make_everything(std::move(selection), codings);
  return std::make_unique<TopK>(density, std::move(selection), codings);
}

}  // namespace winnow::compress
