// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/part.hpp"

#include <array>
#include <bit>
#include <cmath>

#include "kernels/add_to.hpp"
#include "kernels/arithmetic/feedback.hpp"
#include "kernels/feedback.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/take.hpp"

namespace winnow::compress {
namespace {

using kernels::Partition;

/// The entries of a list that lie in a piece; indices are positions of the part.
kernels::SparseView slice(const kernels::SparseView& list, const Piece& piece) {
  const auto begin = std::ranges::lower_bound(list.index, piece.base);
  // The last piece may end at 2^32 - 1 positions: compare in 64 bits.
  const std::uint64_t end = std::uint64_t{piece.base} + piece.elements.size();
  const auto last = std::lower_bound(
      begin, list.index.end(), end,
      [](std::uint32_t position, std::uint64_t bound) { return position < bound; });
  const auto first = static_cast<std::size_t>(begin - list.index.begin());
  const auto size = static_cast<std::size_t>(last - begin);
  return {list.index.subspan(first, size), list.value.subspan(first, size)};
}

/// The positions of the part that local numbers of `owner` name.
std::span<const std::uint32_t> positions_of(const Exec& exec, const Part& part, std::uint32_t owner,
                                            std::span<const std::uint32_t> local) {
  if (part.partition.owners() == 1) return local;
  const auto index = exec.workspace->take<std::uint32_t>(local.size());
  for (std::size_t j = 0; j < index.size(); ++j) {
    index[j] = static_cast<std::uint32_t>(part.partition.position(owner, local[j]));
  }
  return index;
}

/// A message with indices, its local numbers turned into positions.
kernels::SparseView to_positions(const Exec& exec, const Part& part, std::uint32_t owner,
                                 const MessageView& message) {
  return {positions_of(exec, part, owner, message.index), message.value};
}

/// residual = value at the positions of Part::self that a list names.
void store_own(const Part& part, const kernels::SparseView& list) {
  // In chunks, whose cache lines are fetched together.
  constexpr std::size_t kChunk = 128;
  std::array<float*, kChunk> place;
  std::size_t j = 0;
  for (const Piece& piece : part.pieces) {
    float* const residual = piece.residual().data();
    while (j < list.index.size() && list.index[j] < piece.own_begin + piece.own_count) {
      std::size_t size = 0;
      std::uint64_t group = ~std::uint64_t{0}, unit = 0;
      for (; size < kChunk && j + size < list.index.size(); ++size) {
        const std::uint64_t local = list.index[j + size];
        if (local >= piece.own_begin + piece.own_count) break;
        if (local / Partition::kUnit != group) {
          group = local / Partition::kUnit;
          unit = part.partition.unit_of(part.self, group);
        }
        place[size] = residual + (unit * Partition::kUnit + local % Partition::kUnit - piece.base);
        __builtin_prefetch(place[size], 1);
      }
      for (std::size_t i = 0; i < size; ++i) *place[i] = list.value[j + i];
      j += size;
    }
  }
}

/// Calls each(piece, offset in it, local number, size) for the stretches of pieces that `owner`
/// owns, in order; a stretch lies within one unit, or, with one owner, is as long as its piece.
template <class Each>
void for_each_stretch(const Part& part, std::uint32_t owner, const Each& each) {
  const Partition& partition = part.partition;
  if (partition.owners() == 1) {
    for (const Piece& piece : part.pieces) each(piece, 0, piece.base, piece.elements.size());
    return;
  }
  for (const Piece& piece : part.pieces) {
    const std::uint64_t begin = piece.base, end = begin + piece.elements.size();
    for (std::uint64_t group = begin / Partition::kUnit / partition.owners();; ++group) {
      const std::uint64_t unit = partition.unit_of(owner, group) * Partition::kUnit;
      if (group * partition.owners() * Partition::kUnit >= end) break;
      if (unit < begin || unit >= end) continue;
      each(piece, unit - begin, group * Partition::kUnit, std::min(Partition::kUnit, end - unit));
    }
  }
}

/// Values of a message that carries every position, decoded a tile at a time as they are asked for
/// in ascending order.
class Values {
 public:
  Values(const Exec& exec, const MessageView& message) : exec_(exec), message_(message) {}

  /// The values from `begin` on, at least one unit of them or all that there are.
  std::span<const float> from(std::uint64_t begin) {
    if (!message_.value.empty()) return message_.value.subspan(begin);
    const std::uint64_t want = std::min(begin + Partition::kUnit, message_.header.k);
    if (begin < begin_ || want > end_) {
      begin_ = begin;
      end_ = std::min(begin + tile_.size(), message_.header.k);
      kernels::dequantize(exec_, message_.format, message_.header.k, message_.coded, begin_,
                          {tile_.data(), static_cast<std::size_t>(end_ - begin_)});
    }
    return {tile_.data() + (begin - begin_), static_cast<std::size_t>(end_ - begin)};
  }

 private:
  const Exec& exec_;
  const MessageView& message_;
  std::array<float, 4096> tile_;
  std::uint64_t begin_ = 0, end_ = 0;
};

/// each(element of the piece, value) for all that a message which carries every position of
/// `owner` says of the part.
template <class Each>
void for_each_value(const Exec& exec, const Part& part, std::uint32_t owner,
                    const MessageView& message, const Each& each) {
  Values values(exec, message);
  for_each_stretch(
      part, owner,
      [&](const Piece& piece, std::uint64_t offset, std::uint64_t local, std::uint64_t size) {
        for (std::uint64_t at = 0; at < size;) {
          const auto value = values.from(local + at);
          const std::uint64_t here = std::min<std::uint64_t>(value.size(), size - at);
          each(piece, offset + at, value.first(here));
          at += here;
        }
      });
}

/// residual = values, by local number, where they are finite, at the positions of Part::self.
void store_own(const Part& part, std::span<const float> values) {
  for_each_stretch(
      part, part.self,
      [&](const Piece& piece, std::uint64_t offset, std::uint64_t local, std::uint64_t size) {
        float* const residual = piece.residual().data() + offset;
        for (std::uint64_t i = 0; i < size; ++i) {
          const float value = values[local + i];
          if (std::isfinite(value)) residual[i] = value;
        }
      });
}

/// Adds lists of chosen elements to all pieces.
bool add_lists(const Exec& exec, const Part& part, std::span<const kernels::SparseView> lists,
               float factor) {
  const auto slices = exec.workspace->take<kernels::SparseView>(lists.size());
  bool finite = true;
  for (const Piece& piece : part.pieces) {
    for (std::size_t i = 0; i < lists.size(); ++i) slices[i] = slice(lists[i], piece);
    finite = kernels::add_to(exec, piece.elements, piece.base, slices, factor) && finite;
  }
  return finite;
}

}  // namespace

bool add_messages(const Exec& exec, const Part& part, std::span<const MessageView> messages,
                  float factor) {
  if (messages.empty() || part.count == 0) return true;
  const Workspace::Scope scope(*exec.workspace);
  if (std::ranges::none_of(messages, &MessageView::carries_all)) {
    const auto lists = exec.workspace->take<kernels::SparseView>(messages.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      lists[i] = {messages[i].index, messages[i].value};
    }
    return add_lists(exec, part, lists, factor);
  }
  const auto terms = exec.workspace->take<kernels::Term>(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) terms[i] = term(messages[i]);
  bool finite = true;
  for (const Piece& piece : part.pieces) {
    finite = kernels::ordered_sum(exec, terms, piece.base, piece.elements, factor) && finite;
  }
  return finite;
}

bool write_sums(const Exec& exec, const Part& part, std::span<const MessageView> sums,
                float factor) {
  const Workspace::Scope scope(*exec.workspace);
  const auto lists = exec.workspace->take<kernels::SparseView>(sums.size());
  std::uint32_t largest = 0;  // magnitude of what is written here
  for (std::uint32_t owner = 0; owner < sums.size(); ++owner) {
    lists[owner] = {};
    if (!sums[owner].carries_all()) {
      lists[owner] = to_positions(exec, part, owner, sums[owner]);
      continue;
    }
    for_each_value(exec, part, owner, sums[owner],
                   [&](const Piece& piece, std::uint64_t at, std::span<const float> value) {
                     float* const element = piece.elements.data() + at;
                     for (std::size_t i = 0; i < value.size(); ++i) {
                       element[i] = value[i] * factor;
                       largest = std::max(largest,
                                          std::bit_cast<std::uint32_t>(element[i]) & 0x7fffffffu);
                     }
                   });
  }
  return add_lists(exec, part, lists, factor) && largest < 0x7f800000u;
}

void put_back(const Exec& exec, const Part& part, std::uint32_t owner, const MessageView& message) {
  const Workspace::Scope scope(*exec.workspace);
  if (message.carries_all()) {
    for_each_value(exec, part, owner, message,
                   [](const Piece& piece, std::uint64_t at, std::span<const float> value) {
                     float* const residual = piece.residual().data() + at;
                     for (std::size_t i = 0; i < value.size(); ++i) residual[i] += value[i];
                   });
    return;
  }
  const kernels::SparseView list = to_positions(exec, part, owner, message);
  for (const Piece& piece : part.pieces) {
    kernels::put_back(exec, piece.residual(), piece.base, slice(list, piece));
  }
}

kernels::PlaceArray<Bounds> make_bounds(const Exec& exec, std::span<PieceState> pieces) {
  kernels::PlaceArray<Bounds> bounds(exec, pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].bounds = &bounds.span()[i];
  return bounds;
}

void make_residual(const Exec& exec, const Piece& piece) {
  ParameterState& parameter = *piece.parameter;
  if (!parameter.residual.empty()) return;
  parameter.bounds = make_bounds(exec, parameter.pieces);
  parameter.residual = kernels::PlaceArray<float>(exec, parameter.count, parameter.residual_memory);
}

void keep(const Exec& exec, const Piece& piece, float decay) {
  make_residual(exec, piece);
  kernels::feedback_keep(exec, piece.residual(), piece.elements, decay);
  piece.state->soil();
}

void take(const Exec& exec, const Part& part, const Taken& taken) {
  if (!taken.index.empty()) {
    const Workspace::Scope scope(*exec.workspace);
    const auto positions = positions_of(exec, part, taken.owner, taken.index);
    for (const Piece& piece : part.pieces) {
      const auto index = slice({positions, taken.value}, piece).index;
      const auto first = static_cast<std::size_t>(index.data() - positions.data());
      kernels::take(exec, piece.residual(), piece.base, index,
                    taken.value.subspan(first, index.size()));
    }
    return;
  }
  if (taken.value.empty()) return;
  std::ranges::fill(taken.value, 0.0F);  // gaps hold nothing
  for_each_stretch(
      part, taken.owner,
      [&](const Piece& piece, std::uint64_t offset, std::uint64_t local, std::uint64_t size) {
        const auto residual = piece.residual().subspan(offset, size);
        std::ranges::copy(residual, taken.value.begin() + static_cast<std::ptrdiff_t>(local));
        std::ranges::fill(residual, 0.0F);
      });
}

void put(const Exec& exec, const Part& part, const Taken& taken) {
  if (!taken.index.empty()) {
    const Workspace::Scope scope(*exec.workspace);
    const auto positions = positions_of(exec, part, taken.owner, taken.index);
    for (const Piece& piece : part.pieces) {
      kernels::put(exec, piece.residual(), piece.base, slice({positions, taken.value}, piece));
    }
    return;
  }
  if (taken.value.empty()) return;
  for_each_stretch(
      part, taken.owner,
      [&](const Piece& piece, std::uint64_t offset, std::uint64_t local, std::uint64_t size) {
        std::ranges::copy(taken.value.subspan(local, size),
                          piece.residual().subspan(offset, size).begin());
      });
}

void clear_own_gaps(const Exec& exec, const Part& part, std::span<float> local) {
  std::uint64_t end = 0;
  for (const Piece& piece : part.pieces) {
    if (piece.own_count == 0) continue;
    kernels::fill(exec, local.subspan(end, piece.own_begin - end), 0);
    end = piece.own_begin + piece.own_count;
  }
  kernels::fill(exec, local.subspan(end), 0);
}

void keep_left(const Part& part, const Owned& owned) {
  if (!owned.left.empty()) store_own(part, owned.left);
  store_own(part, owned.touched);
  store_own(part, owned.chosen);
}

void put_back_own(const Part& part, const Owned& owned) {
  if (!owned.acc.empty()) store_own(part, owned.acc);
}

}  // namespace winnow::compress
