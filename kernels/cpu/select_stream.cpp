// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/select_stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/select_stream.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/arithmetic/element.hpp"
#include "kernels/cpu/halves-inl.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/precondition-inl.hpp"

#ifndef WINNOW_KERNELS_CPU_SELECT_STREAM_ONCE
#define WINNOW_KERNELS_CPU_SELECT_STREAM_ONCE
namespace winnow::kernels::cpu {

/// Walks the own units of a range of a parameter, in order, as offsets into the parameter.
class OwnWalk {
 public:
  OwnWalk(const OwnUnits& own, std::size_t begin) : own_(own) {
    if (own_.partition == nullptr) return;
    group_ = (own_.base + begin) / Partition::kUnit / own_.partition->owners();
    find();
    while (next_ < begin) advance();
  }
  /// Offset of the next own unit's first element.
  std::size_t next() const { return next_; }
  /// The local number of that element.
  std::uint64_t local() const { return group_ * Partition::kUnit; }
  void advance() {
    ++group_;
    find();
  }

 private:
  // In the group where a parameter begins or ends, the own unit may lie outside: before it (a
  // negative offset counts as 0, and is passed over) or behind.
  void find() {
    const std::uint64_t position = own_.partition->unit_of(own_.self, group_) * Partition::kUnit;
    if (position < own_.base) {
      ++group_;
      find();
      return;
    }
    next_ = position - own_.base;
  }

  const OwnUnits& own_;
  std::uint64_t group_ = 0;
  std::size_t next_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace winnow::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, Ranges::kBlock>;

using Kind = Precondition::Kind;

/// The vector of gradients at `lane` of a block as the first pass sees it, with these moments, if
/// there are any.
template <Kind kKind>
HWY_INLINE hn::Vec<D> update_of(hn::Vec<D> gradient, hn::Vec<D> residual, float* moments,
                                std::size_t lane, const Precondition& by) {
  const D d;
  if constexpr (kKind == Kind::rate) {
    return hn::Mul(gradient, hn::Set(d, by.rate));
  } else if constexpr (kKind == Kind::second_moment) {
    return divide_by_moment(d, gradient, moments + lane, by.divide);
  } else if constexpr (kKind == Kind::momentum) {
    const float masked_at = by.masked ? 0 : std::numeric_limits<float>::quiet_NaN();
    const auto masked = hn::Eq(residual, hn::Set(d, masked_at));
    return correct_momentum(d, gradient, moments + lane, masked, by.add);
  } else {
    return gradient;
  }
}

/// A block's memory. A plain pass has no gradient; a moment is there if the pass has one.
struct Block {
  float *gradient, *residual, *moment;
};

/// For a gradient of float32.
HWY_INLINE Block block_at(const Stream& s, std::size_t at) {
  float* const gradient = s.gradient.floats().data();
  return {gradient == nullptr ? nullptr : gradient + at, s.residual + at,
          s.precondition.has_moment() ? s.precondition.moment + at : nullptr};
}

/// A copy of a block's gradient in float32, zeros behind it.
HWY_INLINE void read_gradient(const Elements& from, float* to) {
  const D d;
  std::uint16_t copies[Ranges::kBlock];
  std::fill(std::ranges::copy(from.halves(), copies).out, copies + Ranges::kBlock, 0);
  const bool is_bf16 = from.type() == ElementType::bf16;
  for (std::size_t lane = 0; lane < Ranges::kBlock; lane += hn::Lanes(d)) {
    const std::uint16_t* const half = copies + lane;
    hn::StoreU(is_bf16 ? load_bf16(d, half) : load_fp16(d, half), d, to + lane);
  }
}

/// The reverse, for the zeros and marks that a pass leaves.
HWY_INLINE void write_gradient(const float* from, const Elements& to) {
  const D d;
  auto any = hn::Zero(d);
  for (std::size_t lane = 0; lane < Ranges::kBlock; lane += hn::Lanes(d)) {
    any = hn::Or(any, hn::LoadU(d, from + lane));
  }
  if (hn::AllTrue(d, hn::Eq(any, hn::Zero(d)))) {
    std::ranges::fill(to.halves(), std::uint16_t{0});
    return;
  }
  for (std::size_t i = 0; i < to.size(); ++i) (void)write_element(to, i, from[i]);
}

/// Whose elements are streamed. Own units leave no mark: nothing repeats their pass.
enum class Units : std::uint8_t { competing, own };

/// Streams one block and returns a bit for each element that reaches the bound. Clears `finite`
/// in lanes where acc is not.
template <Pass kPass, Kind kKind, Units kUnits = Units::competing>
HWY_INLINE std::uint64_t stream_block(const Block& block, const Stream& s, float bound,
                                      hn::Mask<D>& finite) {
  float* HWY_RESTRICT const gradient = block.gradient;
  float* HWY_RESTRICT const residual = block.residual;
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const auto largest = hn::Set(d, std::numeric_limits<float>::max());
  const auto decays = hn::Set(d, s.decay);
  const auto bounds = hn::Set(d, bound);
  const hn::RebindToUnsigned<D> d32;
  const auto mask = hn::BitCast(d, hn::Set(d32, s.side.mask));
  const auto flip = hn::BitCast(d, hn::Set(d32, s.side.flip));
  const auto key = [&](hn::Vec<D> x) { return hn::Xor(hn::And(x, mask), flip); };  // SideKey::of
  std::uint64_t candidates = 0;
  for (std::size_t lane = 0; lane < Ranges::kBlock; lane += lanes) {
    const auto r = hn::LoadU(d, residual + lane);
    auto reaches = hn::Ge(key(r), bounds);
    if constexpr (kPass != Pass::plain) {
      const auto g =
          update_of<kKind>(hn::LoadU(d, gradient + lane), r, block.moment, lane, s.precondition);
      // Repeated: g is +0, or a mark whose bits make the result not finite.
      const auto acc = kPass == Pass::repeated ? hn::Or(g, r) : hn::Add(g, hn::Mul(decays, r));
      const auto is_finite = hn::Le(hn::Abs(acc), largest);
      reaches = hn::And(is_finite, hn::Ge(key(acc), bounds));
      hn::StoreU(hn::IfThenElse(is_finite, acc, r), d, residual + lane);
      const auto mark = kUnits == Units::own ? hn::Zero(d) : hn::IfThenZeroElse(is_finite, acc);
      hn::StoreU(mark, d, gradient + lane);
      finite = hn::And(finite, is_finite);
    }
    std::uint8_t bytes[8];
    hn::StoreMaskBits(d, reaches, bytes);
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes, (lanes + 7) / 8);
    candidates |= bits << lane;
  }
  return candidates;
}

/// The blocks streamed last: bits of the elements that reach the bound, and where the block lies.
/// An element that is loaded soon after the vector around it was stored has to wait until the store
/// has left the processor's queue, which took longer than the rest of the pass; so a block's
/// elements are only looked at when others have been streamed.
template <class Place>
class LastBlocks {
 public:
  static constexpr std::size_t kBlocks = 8;  // whose stores fill the queue

  /// Adds a block, after each(bits, place) of the block that was added kBlocks before, if any of
  /// its elements reaches the bound.
  template <class Each>
  HWY_INLINE void add(std::uint64_t bits, const Place& place, const Each& each) {
    if (bits_[next_] != 0) each(bits_[next_], places_[next_]);
    bits_[next_] = bits;
    places_[next_] = place;
    next_ = (next_ + 1) % kBlocks;
  }
  template <class Each>
  HWY_INLINE void end(const Each& each) {
    for (std::size_t i = 0; i < kBlocks; ++i) add(0, {}, each);
  }

 private:
  std::uint64_t bits_[kBlocks] = {};
  Place places_[kBlocks];
  std::size_t next_ = 0;
};

/// Where an own unit lies, and the local number of its first element.
struct OwnPlace {
  std::size_t at;
  std::uint64_t local;
};

/// Moves the elements of a block named by `bits` from the residual to the candidates.
HWY_INLINE void collect(std::uint64_t bits, std::size_t base, float* residual, Candidates& out) {
  std::size_t size = out.size;
  while (bits != 0) {
    const std::size_t i = base + static_cast<std::size_t>(std::countr_zero(bits));
    out.index[size] = static_cast<std::uint32_t>(i);
    out.value[size] = residual[i];
    residual[i] = 0;
    ++size;
    bits &= bits - 1;
  }
  out.size = size;
}

/// Lists the elements of an own unit named by `bits`, which stay in the residual.
HWY_INLINE void write_own(std::uint64_t bits, const OwnPlace& unit, const float* residual,
                          OwnList& list) {
  for (; bits != 0; bits &= bits - 1) {
    if (list.size < list.room) {
      const auto bit = static_cast<std::uint32_t>(std::countr_zero(bits));
      list.index[list.size] = static_cast<std::uint32_t>(unit.local) + bit;
      list.value[list.size] = residual[unit.at + bit];
    }
    ++list.size;
  }
}

/// Streams a block of a gradient of 16 bits; as stream_block.
template <Pass kPass, Kind kKind, Units kUnits = Units::competing>
HWY_INLINE std::uint64_t stream_halves(const Stream& s, std::size_t at, float bound,
                                       hn::Mask<D>& finite) {
  float gradient[Ranges::kBlock];
  const Elements halves = s.gradient.subspan(at, Ranges::kBlock);
  read_gradient(halves, gradient);
  const Block block = {gradient, s.residual + at,
                       s.precondition.has_moment() ? s.precondition.moment + at : nullptr};
  const std::uint64_t bits = stream_block<kPass, kKind, kUnits>(block, s, bound, finite);
  write_gradient(gradient, halves);
  return bits;
}

/// Streams fewer elements than a block has; as stream_block.
template <bool kHalves, Pass kPass, Kind kKind, Units kUnits = Units::competing>
HWY_INLINE std::uint64_t stream_short(const Stream& s, std::size_t at, std::size_t size,
                                      float bound, hn::Mask<D>& finite) {
  float copies[3][Ranges::kBlock];
  const Block block = block_at(s, at);
  float* const memory[] = {kHalves ? nullptr : block.gradient, block.residual, block.moment};
  for (std::size_t i = 0; i < 3; ++i) {
    if (memory[i] == nullptr) continue;
    std::fill(std::copy_n(memory[i], size, copies[i]), copies[i] + Ranges::kBlock, 0.0F);
  }
  if constexpr (kHalves) read_gradient(s.gradient.subspan(at, size), copies[0]);
  const std::uint64_t bits =
      stream_block<kPass, kKind, kUnits>({copies[0], copies[1], copies[2]}, s, bound, finite) &
      ((std::uint64_t{1} << size) - 1);
  for (std::size_t i = 0; i < 3; ++i) {
    if (memory[i] != nullptr) std::copy_n(copies[i], size, memory[i]);
  }
  if constexpr (kHalves) write_gradient(copies[0], s.gradient.subspan(at, size));
  return bits;
}

/// Streams a whole block; as stream_block.
template <bool kHalves, Pass kPass, Kind kKind, Units kUnits = Units::competing>
HWY_INLINE std::uint64_t stream_whole(const Stream& s, std::size_t at, float bound,
                                      hn::Mask<D>& finite) {
  if constexpr (kHalves) {
    return stream_halves<kPass, kKind, kUnits>(s, at, bound, finite);
  } else {
    return stream_block<kPass, kKind, kUnits>(block_at(s, at), s, bound, finite);
  }
}

/// Streams an own unit. Returns a bit for each element that reaches its bound.
template <bool kHalves, Kind kKind>
HWY_INLINE std::uint64_t stream_own(const Stream& s, std::size_t at, std::size_t size,
                                    hn::Mask<D>& finite) {
  return size == Ranges::kBlock
             ? stream_whole<kHalves, Pass::first, kKind, Units::own>(s, at, s.own.bound, finite)
             : stream_short<kHalves, Pass::first, kKind, Units::own>(s, at, size, s.own.bound,
                                                                     finite);
}

/// kHalves: the gradient has 16 bits.
template <bool kHalves, Pass kPass, Kind kKind = Kind::none>
bool stream(const Stream& input, std::size_t begin, std::size_t end, Candidates& out,
            OwnList& list) {
  const Stream s = input;  // a local one, which the pass's stores cannot change
  const D d;
  const auto zero = hn::Zero(d);
  hn::Mask<D> finite = hn::Ge(zero, zero);
  float bound = s.bound;
  LastBlocks<std::size_t> blocks;
  LastBlocks<OwnPlace> own_units;
  const auto move = [&](std::uint64_t bits, std::size_t at) {
    collect(bits, at, s.residual, out);
    if (out.size > out.limit) bound = prune(out, s.k, s.residual);
  };
  const auto write = [&](std::uint64_t bits, const OwnPlace& unit) {
    write_own(bits, unit, s.residual, list);
  };
  std::size_t i = begin;
  for (OwnWalk own(s.own, begin);; own.advance()) {
    const std::size_t stop = std::min(end, own.next());
    for (; i + Ranges::kBlock <= stop; i += Ranges::kBlock) {
      blocks.add(stream_whole<kHalves, kPass, kKind>(s, i, bound, finite), i, move);
    }
    if (own.next() >= end) break;
    const std::size_t size = std::min(Ranges::kBlock, end - i);
    if (kPass == Pass::first) {
      own_units.add(stream_own<kHalves, kKind>(s, i, size, finite), {i, own.local()}, write);
    }
    i += size;
  }
  if (i < end) {
    blocks.add(stream_short<kHalves, kPass, kKind>(s, i, end - i, bound, finite), i, move);
  }
  blocks.end(move);
  own_units.end(write);
  return hn::AllTrue(d, finite);
}

template <bool kHalves>
bool stream_gradient(const Stream& s, std::size_t begin, std::size_t end, Candidates& out,
                     OwnList& list) {
  if (s.pass == Pass::repeated) return stream<kHalves, Pass::repeated>(s, begin, end, out, list);
  switch (s.precondition.kind) {
    case Kind::rate:
      return stream<kHalves, Pass::first, Kind::rate>(s, begin, end, out, list);
    case Kind::second_moment:
      return stream<kHalves, Pass::first, Kind::second_moment>(s, begin, end, out, list);
    case Kind::momentum:
      return stream<kHalves, Pass::first, Kind::momentum>(s, begin, end, out, list);
    case Kind::none:
      break;
  }
  return stream<kHalves, Pass::first>(s, begin, end, out, list);
}

bool stream_any(const Stream& s, std::size_t begin, std::size_t end, Candidates& out,
                OwnList& list) {
  if (s.pass == Pass::plain) return stream<false, Pass::plain>(s, begin, end, out, list);
  return s.gradient.type() == ElementType::float32
             ? stream_gradient<false>(s, begin, end, out, list)
             : stream_gradient<true>(s, begin, end, out, list);
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(stream_any);

bool stream_range(const Stream& s, std::size_t begin, std::size_t end, Candidates& out,
                  OwnList& list) {
  return HWY_DYNAMIC_DISPATCH(stream_any)(s, begin, end, out, list);
}

}  // namespace winnow::kernels::cpu
#endif
