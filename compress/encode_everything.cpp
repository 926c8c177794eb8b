// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Every element on its way into messages: error feedback and coding in one pass.
#include <algorithm>

#include "compress/lists.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::compress {

void Compressor::encode(const Exec& exec, const KeepsAll&, const EncodeJob& job,
                        EncodeResult& out) const {
  const Part& part = job.part;
  std::span<float> acc;
  if (part.self != Part::kNobody) {
    acc = kernels::scratch_of(exec).take<float>(part.partition.local_count(part.self));
  }
  const auto not_finite = kernels::take_zeros<std::uint32_t>(exec, 2);
  if (part.self != Part::kNobody) out.owned.sums = OwnedAcc{{}, acc, not_finite};
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
  const auto acc_not_finite = not_finite.first(1);
  kernels::feedback_quantize(exec, {.pieces = kernels::place<kernels::FeedbackPiece>(exec, pieces),
                                    .decay = job.decay,
                                    .partition = part.partition,
                                    .self = part.self,
                                    .format = codings_.value,
                                    .key = job.random,
                                    .out = values,
                                    .own = acc,
                                    .not_finite = acc_not_finite.data()});
  out.kept = part.k;
  const kernels::Stopwatch watch(job.encode_seconds);
  kernels::together(exec, [&] {
    for (std::uint32_t owner = 0; owner < owners; ++owner) {
      if (owner == part.self) continue;
      Header header = part.of_owner(job.header, owner);
      header.k = header.count;
      store_message(
          out, owner,
          finish_message(exec, header, part.shapes.gradients[owner], {}, out.messages[owner],
                         codings_, {.words = acc_not_finite}, job.status));
    }
  });
}

}  // namespace winnow::compress
