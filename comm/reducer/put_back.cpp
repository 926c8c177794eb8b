// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/reducer/put_back.hpp"

#include <algorithm>

#include "kernels/exec/together.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/owned.hpp"

namespace winnow::comm {
namespace {

using compress::Header;

/// Calls use(owner, message) with each of this rank's own messages, opened. Those that are open
/// already share launches.
template <class Use>
void open_own(const Exchange& exchange, const Exec& exec, const Use& use) {
  const compress::Part& part = exchange.part;
  const bool partitioned = part.self != compress::Part::kNobody;
  if (!exchange.opened.empty()) {
    kernels::together(exec, [&] {
      for (std::uint32_t owner = 0; owner < exchange.own.size(); ++owner) {
        if (owner != part.self) use(owner, exchange.opened[owner]);
      }
    });
    return;
  }
  for (std::uint32_t owner = 0; owner < exchange.own.size(); ++owner) {
    if (owner == part.self) continue;
    const kernels::ScratchScope scope(exec);
    Header header = exchange.header;
    if (partitioned) {
      header = part.of_owner(header, owner);
      header.kind = Header::Kind::contribution;
      header.k = part.most_for(owner);
    }
    use(owner,
        exchange.compressor.open(exec, exchange.own[owner], compress::Expected::at_most(header),
                                 exchange.world.rank()));
  }
}

}  // namespace

void reserve_for_put_back(const Exchange& exchange, const Exec& exec) {
  if (exchange.in_residuals) return;
  open_own(exchange, exec, [](std::uint32_t, const compress::MessageView&) {});
}

void put_back(const Exchange& exchange, const Exec& exec, float fill) {
  kernels::together(exec, [&] {
    for (const SavedResidual& saved : exchange.saved) {
      if (saved.before.empty()) {
        kernels::fill(exec, saved.residual, 0);
      } else {
        kernels::copy(exec, saved.residual, saved.before);
      }
    }
  });
  if (exchange.in_residuals) {
    kernels::together(exec, [&] {
      for (const compress::Taken& taken : exchange.taken) {
        compress::put(exec, exchange.part, exchange.owned, taken);
      }
    });
  } else if (!exchange.chosen.begin.empty()) {
    compress::put_back(exec, exchange.part, exchange.owned, exchange.chosen);
  } else if (!exchange.own.empty()) {
    open_own(exchange, exec, [&](std::uint32_t owner, const compress::MessageView& message) {
      compress::put_back(exec, exchange.part, exchange.owned, owner, message);
    });
    compress::put_back_own(exec, exchange.part, exchange.owned);
  } else if (!exchange.in_place) {
    compress::keep(exec, exchange.part.pieces, exchange.decay);
  }
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
