// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/none.hpp"

#include <winnow/error.hpp>

#include "compress/stopwatch.hpp"

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
    const Workspace::Scope scope(*exec.workspace);
    const auto pieces = exec.workspace->take<kernels::FeedbackPiece>(part.pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = part.pieces[i];
      pieces[i] = {piece.elements, piece.residual(), piece.base};
      piece.state->dirty = true;
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
    out.finite = kernels::feedback_quantize(
        exec,
        {.pieces = pieces, .decay = job.decay, .partition = part.partition, .self = part.self},
        codings().value, job.random, values, out.own);
    const Stopwatch watch(job.encode_seconds);
    Header header = job.header;
    if (!out.finite) header.flags |= Header::kPoison;
    for (std::uint32_t owner = 0; owner < owners; ++owner) {
      if (owner == part.self) continue;
      header.count = header.k = part.partition.local_count(owner);
      seal(exec, header, {}, out.messages[owner], codings());
    }
  }

  void encode_sums(const Exec& exec, const EncodeJob& job, std::span<float> sums,
                   std::span<std::byte> out) const override {
    const Stopwatch watch(job.encode_seconds);
    Header header = job.header;
    header.count = header.k = sums.size();
    kernels::quantize(exec, codings().value, job.random, sums,
                      lay_out(header.count, header.k, out, codings()).value_part);
    seal(exec, header, {}, out, codings());
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
