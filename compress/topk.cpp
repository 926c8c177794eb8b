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

namespace winnow::compress {
namespace {

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
    const Workspace::Scope scope(*exec.workspace);
    const auto index = exec.workspace->take<std::uint32_t>(part.k);
    const auto value = exec.workspace->take<float>(part.k);
    const bool shared = part.self != Part::kNobody;
    std::size_t at = 0;
    for (const Piece& piece : part.pieces) {
      const auto piece_index = index.subspan(at, piece.k);
      kernels::FeedbackSpans spans{piece.elements, piece.residual(), job.decay};
      if (shared) spans.own = {&part.partition, part.self, piece.base, out.own};
      const auto result = kernels::feedback_select(exec, spans, piece.state->bound, piece_index,
                                                   value.subspan(at, piece.k));
      out.finite = out.finite && result.finite;
      for (std::uint32_t& position : piece_index) position += piece.base;
      piece.state->dirty = true;
      at += piece.k;
    }
    seal_selected(exec, codings(), job, index, value, out);
  }

  void encode_sums(const Exec& exec, const EncodeJob& job, std::span<float> sums,
                   std::span<std::byte> out) const override {
    const Part& part = job.part;
    const Workspace::Scope scope(*exec.workspace);
    const auto index = exec.workspace->take<std::uint32_t>(part.owner_k[part.self]);
    const auto value = exec.workspace->take<float>(index.size());
    std::size_t at = 0;
    for (const Piece& piece : part.pieces) {
      if (piece.own_k == 0) continue;
      const auto piece_index = index.subspan(at, piece.own_k);
      kernels::select(exec, sums.subspan(piece.own_begin, piece.own_count), piece.state->sum_bound,
                      piece_index, value.subspan(at, piece.own_k));
      for (std::uint32_t& local : piece_index) local += static_cast<std::uint32_t>(piece.own_begin);
      at += piece.own_k;
    }
    seal_selected_sums(exec, codings(), job, index, value, sums, out);
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
