// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/none.hpp"

#include <algorithm>
#include <winnow/error.hpp>

#include "compress/support.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::compress {
namespace {

class Everything final : public Compressor {
 public:
  Everything(std::string selection, const Codings& codings)
      : Compressor(codings), selection_(std::move(selection)) {}

  bool everything() const override { return true; }
  std::uint64_t kept(std::uint64_t count) const override { return count; }

  void encode(const Exec& exec, const EncodeJob& job, Outbox& out) const override {
    const Part& part = job.part;
    if (part.self != Part::kNobody) {
      out.owned.acc = exec.workspace->take<float>(part.partition.local_count(part.self));
      clear_own_gaps(exec, part, out.owned.acc);
    }
    const Workspace::Scope scope(*exec.workspace);
    const auto pieces = exec.workspace->take<kernels::FeedbackPiece>(part.pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = part.pieces[i];
      pieces[i] = {piece.elements, piece.residual(), piece.base};
      piece.state->soil();
    }
    const std::uint32_t owners = part.partition.owners();
    const auto values = exec.workspace->take<std::span<std::byte>>(owners);
    for (std::uint32_t owner = 0; owner < owners; ++owner) {
      values[owner] = {};
      if (owner == part.self) continue;
      const std::uint64_t count = part.partition.local_count(owner);
      auto& message = out.messages[owner];
      message = message.first(message_bytes(count, count, codings()));
      values[owner] = lay_out(count, count, message, codings()).value_part;
    }
    const auto feed = [&](std::uint32_t* not_finite) {
      kernels::feedback_quantize(exec,
                                 {.pieces = kernels::place<kernels::FeedbackPiece>(exec, pieces),
                                  .decay = job.decay,
                                  .partition = part.partition,
                                  .self = part.self,
                                  .format = codings().value,
                                  .key = job.random,
                                  .out = values,
                                  .own = out.owned.acc,
                                  .not_finite = not_finite});
    };
    out.finite = kernels::answer(exec, feed) == 0;
    out.kept = part.k;
    const kernels::Stopwatch watch(job.encode_seconds);
    Header header = job.header;
    if (!out.finite) header.flags |= Header::kPoison;
    for (std::uint32_t owner = 0; owner < owners; ++owner) {
      if (owner == part.self) continue;
      header.count = header.k = part.partition.local_count(owner);
      seal(exec, header, {}, out.messages[owner], codings());
    }
  }

  std::span<std::byte> encode_sums(const Exec& exec, const EncodeJob& job,
                                   std::span<const MessageView> contributions, Owned& owned,
                                   std::span<std::byte> out) const override {
    const Part& part = job.part;
    Header header = job.header;
    header.count = header.k = owned.acc.size();
    owned.left = exec.workspace->take<float>(owned.acc.size());
    const Workspace::Scope scope(*exec.workspace);
    {
      const kernels::Stopwatch watch(job.add_seconds);
      const auto terms = exec.workspace->take<kernels::Term>(contributions.size());
      for (std::size_t rank = 0; rank < terms.size(); ++rank)
        terms[rank] = term(contributions[rank]);
      terms[part.self] = {.value = owned.acc};
      std::uint32_t not_finite = 0;
      kernels::ordered_sum(exec, {.terms = {terms}, .sum = owned.left, .not_finite = &not_finite});
      if (not_finite != 0) header.flags |= Header::kPoison;
      if ((header.flags & Header::kPoison) != 0) std::ranges::fill(owned.left, 0.0F);
      clear_own_gaps(exec, part, owned.left);  // where a sign, say, is never 0
    }
    const kernels::Stopwatch watch(job.encode_seconds);
    kernels::quantize(exec, codings().value, job.random, owned.left,
                      lay_out(header.count, header.k, out, codings()).value_part);
    seal(exec, header, {}, out, codings());
    return out;
  }

  void select(const Exec& exec, const EncodeJob& job, std::span<std::byte> out) const override {
    EncodeJob sealed = job;
    for (const Piece& piece : job.part.pieces) {
      kernels::SelectResult result{};
      kernels::feedback_select(exec, {.spans = {piece.elements, piece.residual(), job.decay},
                                      .state = &piece.state->bounds->bound,
                                      .result = &result});
      if (!result.finite) sealed.header.flags |= Header::kPoison;
      piece.state->soil();
    }
    seal_support(exec, codings(), sealed, {}, out);
  }

 protected:
  std::string selection() const override { return selection_; }

 private:
  std::string selection_;
};

}  // namespace

std::unique_ptr<Compressor> make_everything(std::string selection, const Codings& codings) {
  return std::make_unique<Everything>(std::move(selection), codings);
}

std::unique_ptr<Compressor> make_none(std::string_view argument, const Codings& codings) {
  if (!argument.empty()) {
    fail_usage("none takes no argument, not '" + std::string(argument) + "'");
  }
  return make_everything("none", codings);
}

}  // namespace winnow::compress
