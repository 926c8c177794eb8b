// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/restore.hpp"

#include <algorithm>

#include "kernels/exec/together.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/owned.hpp"

namespace winnow::comm {
namespace {

using compress::Header;

/// Calls use(owner, message) with each of this rank's own messages, decoded.
template <class Use>
void decode_own(const Exchange& exchange, const Encoded& own, const Exec& exec, const Use& use) {
  const compress::Part& part = exchange.part;
  const bool partitioned = part.self != compress::Part::kNobody;
  for (std::uint32_t owner = 0; owner < own.messages.size(); ++owner) {
    if (owner == part.self) continue;
    const kernels::ScratchScope scope(exec);
    Header header = exchange.header;
    if (partitioned) {
      header = part.of_owner(header, owner);
      header.kind = Header::Kind::contribution;
      header.k = part.most_for[owner];
    }
    use(owner, exchange.compressor.decode(exec, own.messages[owner],
                                          compress::Expected::at_most(header), exchange.wire.rank));
  }
}

/// Puts back what each kind of Undo says.
struct Restore {
  const Exchange& exchange;
  const Exec& exec;

  void operator()(const Untouched&) const {
    compress::keep(exec, exchange.part.pieces, exchange.scaling.decay);
  }
  void operator()(const ResidualsChanged& changed) const {
    kernels::together(exec, [&] {
      for (const auto& [residual, before] : changed.stretches) {
        if (before.empty()) {
          kernels::fill(exec, residual, 0);
        } else {
          kernels::copy(exec, residual, before);
        }
      }
    });
    compress::keep(exec, exchange.part.pieces, exchange.scaling.decay);
  }
  void operator()(const Overwritten&) const {}
  void operator()(const Accumulated& accumulated) const {
    kernels::together(exec, [&] {
      for (const compress::Taken& taken : accumulated.taken) {
        compress::put(exec, exchange.part, exchange.owned, taken);
      }
    });
  }
  void operator()(const Selected& selected) const {
    compress::restore(exec, exchange.part, exchange.owned, selected.chosen);
  }
  void operator()(const Encoded& own) const {
    decode_own(exchange, own, exec, [&](std::uint32_t owner, const compress::MessageView& message) {
      compress::restore(exec, exchange.part, exchange.owned, owner, message);
    });
    compress::restore_own(exec, exchange.part, exchange.owned);
  }
  void operator()(const Decoded& own) const {
    kernels::together(exec, [&] {
      for (std::uint32_t owner = 0; owner < own.messages.size(); ++owner) {
        if (owner == exchange.part.self) continue;
        compress::restore(exec, exchange.part, exchange.owned, owner, own.messages[owner]);
      }
    });
    compress::restore_own(exec, exchange.part, exchange.owned);
  }
};

}  // namespace

void reserve_for_restore(const Exchange& exchange, const Exec& exec) {
  const Encoded* const own = std::get_if<Encoded>(&exchange.undo);
  if (own == nullptr) return;
  decode_own(exchange, *own, exec, [](std::uint32_t, const compress::MessageView&) {});
}

void restore(const Exchange& exchange, const Exec& exec, float fill) {
  std::visit(Restore{exchange, exec}, exchange.undo);
  if (!exchange.owned.elements.host.empty()) {
    kernels::fill_pieces(exec, exchange.owned.elements, fill);
    return;
  }
  kernels::together(exec, [&] {
    for (const compress::Piece& piece : exchange.part.pieces) {
      kernels::fill(exec, piece.elements, fill);
    }
  });
}

}  // namespace winnow::comm
