// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/arithmetic/feedback.hpp"
#include "kernels/arithmetic/philox.hpp"
#include "kernels/arithmetic/value.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/message_tasks.cuh"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"
#include "kernels/value_coding.hpp"

// Error feedback and coding of messages, each to one owner, in one pass. A block takes a span of a
// message's values: a tile of 2048, or one whole scale block where that is longer.
//
// 1. Measure: acc = gradient + decay * residual, 8 values a thread in registers, and of each scale
//    block what its scale is made of. The largest magnitude may be found in any order: by each warp
//    for itself in scale blocks up to the 256 values that it has beside each other, and in longer
//    ones by every thread of what warps have found. A sum has a fixed order, 16 chains of additions
//    a scale block (values::sum_of_addends), so a thread walks each chain through shared memory.
// 2. Code: the codes go to the message, and what they miss to the residual.
//
// For a span that is one tile, as all are up to blocks of 2048 values, step 2 finds acc in the
// registers; of a longer one it reads again.

namespace winnow::kernels::cuda {

/// The arguments that all messages of a launch share.
struct QuantizeCall {
  const FeedbackPiece* pieces;  ///< in device memory, where there are several
  std::uint32_t piece_count;
  ElementType type;  ///< of all gradients
  float decay;
  Partition partition;
  std::uint32_t block;        ///< values that share a scale, a power of two; 0: there are no scales
  std::uint32_t block_shift;  ///< log2 of them
  std::uint32_t span;         ///< values that a block of threads takes
  std::uint32_t* not_finite;  ///< becomes 1 where an acc is not finite; may be null
};

struct QuantizeMessage {
  FeedbackPiece only;  ///< where there is one piece; without gradient acc is the residual
  RandomKey key;       ///< of the first owner
  std::uint32_t owner;
  std::uint64_t count;   ///< values
  std::uint64_t padded;  ///< values that the codes have room for
  float* scales;
  std::byte* codes;
};

/// The random words of a message.
struct RandomWords {
  RandomKey name;
  Philox::Key key;

  WINNOW_DEVICE explicit RandomWords(const QuantizeMessage& message)
      : name(message.key), key(Philox::key(name)) {
    name.stage += message.owner;
  }
  /// The random words of values 4 * quarter to 4 * quarter + 3.
  WINNOW_DEVICE Philox::Words of(std::uint64_t quarter) const {
    return Philox::words(Philox::counter(name, quarter), key);
  }
};

/// Where four values lie, all of one unit.
struct VectorAt {
  void* gradient;  // of the first, of QuantizeCall::type; null: acc is the residual
  float* residual;
  unsigned here;  // bits of those that are not in a gap

  WINNOW_DEVICE bool is_whole(ElementType type) const {
    return here == 0xf && gradient != nullptr && DeviceElements{gradient, type}.are_vectors() &&
           is_vector(residual);
  }
};

/// The last piece that begins at or before a position, if there is one.
WINNOW_DEVICE FeedbackPiece find_piece(const QuantizeCall& call, const QuantizeMessage& message,
                                       std::uint64_t position) {
  if (call.piece_count == 1) return message.only;
  std::uint32_t low = 0, high = call.piece_count;  // the first that begins behind it
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (call.pieces[middle].base <= position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? FeedbackPiece{} : call.pieces[low - 1];
}

/// Where values from number `first` on lie. No unit lies in two pieces.
WINNOW_DEVICE VectorAt find_vector(const QuantizeCall& call, const QuantizeMessage& message,
                                   std::uint64_t first) {
  const std::uint64_t position =
      call.partition.owners() == 1 ? first : call.partition.position(message.owner, first);
  const FeedbackPiece piece = find_piece(call, message, position);
  const std::uint64_t offset = position - piece.base, size = piece.residual.size();
  const unsigned here = position < piece.base ? 0 : elements_below(size, offset);
  const std::uint64_t at = here != 0 ? offset : 0;
  const DeviceElements gradient{device_elements(piece.gradient).data, call.type};
  return {gradient.data != nullptr ? gradient.from(at).data : nullptr, piece.residual.data() + at,
          here};
}

/// acc, 0 in gaps; of whole vectors all accesses are under way before the first ends.
template <std::uint32_t kCount>
WINNOW_DEVICE void load_acc(const VectorAt (&at)[kCount], const QuantizeCall& call,
                            float (&acc)[kCount][4]) {
  bool whole = true;
  for (std::uint32_t j = 0; j < kCount; ++j) whole = whole && at[j].is_whole(call.type);
  float gradient[kCount][4] = {};
  if (whole && call.type == ElementType::float32) {
    for (std::uint32_t j = 0; j < kCount; ++j) {
      simt::load4(static_cast<const float*>(at[j].gradient), gradient[j]);
    }
    for (std::uint32_t j = 0; j < kCount; ++j) simt::load4(at[j].residual, acc[j]);
  } else {
    for (std::uint32_t j = 0; j < kCount; ++j) {
      load_vector(at[j].residual, at[j].here, acc[j]);
      if (at[j].gradient == nullptr) continue;
      DeviceElements{at[j].gradient, call.type}.load(0, at[j].here, gradient[j]);
    }
  }
  for (std::uint32_t j = 0; j < kCount; ++j) {
    if (at[j].gradient == nullptr) continue;
    for (unsigned e = 0; e < 4; ++e) acc[j][e] = feedback(gradient[j][e], call.decay, acc[j][e]);
  }
}

/// Values of a tile: 2 vectors a thread.
inline constexpr std::uint32_t kQuantizeVectors = 2;
inline constexpr std::uint32_t kQuantizeTile = simt::kThreads * 4 * kQuantizeVectors;

template <class Coding, Rounding kRounding, unsigned kMessages>
struct FeedbackQuantize {
  QuantizeCall call;
  MessageTasks<QuantizeMessage, kMessages> messages;

  static constexpr unsigned kResident =
      kRounding == Rounding::stochastic ? 4 : (kMessages == 1 ? 6 : 5);
  static constexpr std::uint32_t kBits = Coding::kLine.bits;
  static constexpr bool kHasScales = Coding::kLine.default_block != 0;
  static constexpr bool kSums = requires(float mean) { Coding::scale_of_mean(mean); };
  static constexpr std::uint32_t kUnit = 64;  // no scale block is shorter
  static constexpr std::uint32_t kUnits = kQuantizeTile / kUnit;
  static constexpr std::uint32_t kOfVectors = simt::kLanes * 4;  // a vector of each lane
  static constexpr std::uint32_t kOfWarp = kOfVectors * kQuantizeVectors;
  static constexpr std::uint32_t kChains = 16;  // of values::sum_of_addends
  static constexpr std::uint32_t kChainsOfThread = kUnits * kChains / simt::kThreads;

  struct Shared {
    std::uint32_t largest[simt::kWarps];        // magnitude, by warp
    float addend[kSums ? kQuantizeTile : 1];    // of the tile
    float chain[kSums ? kUnits * kChains : 1];  // sums, by scale block and chain
    float scale[kSums ? kUnits : 1];            // by scale block of the span
  };

  /// A thread's part of a tile.
  struct Values {
    float acc[kQuantizeVectors][4];  // 0 in gaps and where not finite
    float* residual[kQuantizeVectors];
    unsigned stored[kQuantizeVectors];  // bits of the residuals that become what the codes miss
    unsigned added[kQuantizeVectors];   // of those to which it is added: acc was not finite
    float scale[kQuantizeVectors];
  };

  WINNOW_DEVICE void run(Shared& shared) const {
    const QuantizeMessage& message = messages.of_block();
    const std::uint64_t begin = std::uint64_t{messages.block()} * call.span;
    if (begin >= message.count) return;
    const std::uint64_t end = begin + call.span < message.count ? begin + call.span : message.count;
    Values values;
    if constexpr (!kHasScales) {
      load(message, begin, values);
    } else if constexpr (kSums) {
      measure_sums(shared, message, begin, end, values);
    } else {
      measure_largest(shared, message, begin, end, values);
    }
    for (std::uint64_t tile = begin; tile < end; tile += kQuantizeTile) {
      if (call.span > kQuantizeTile) load(message, tile, values);
      code(message, tile, values);
    }
  }

 private:
  /// The first value of this thread's vector j of a tile.
  WINNOW_DEVICE static std::uint64_t first_of(std::uint64_t tile, std::uint32_t j) {
    return tile + simt::thread() / simt::kLanes * kOfWarp + j * kOfVectors + simt::lane() * 4;
  }

  WINNOW_DEVICE void load(const QuantizeMessage& message, std::uint64_t tile,
                          Values& values) const {
    VectorAt at[kQuantizeVectors];
    for (std::uint32_t j = 0; j < kQuantizeVectors; ++j) {
      at[j] = find_vector(call, message, first_of(tile, j));
      values.residual[j] = at[j].residual;
      values.stored[j] = at[j].here;
    }
    load_acc(at, call, values.acc);
    for (std::uint32_t j = 0; j < kQuantizeVectors; ++j) {
      values.added[j] = 0;
      for (unsigned e = 0; e < 4; ++e) {
        if (is_finite(values.acc[j][e])) continue;
        values.acc[j][e] = 0;
        values.stored[j] &= ~(1U << e);
        values.added[j] |= 1U << e;
      }
    }
  }

  /// Scale blocks of a span, counted to its end even where the values end before.
  WINNOW_DEVICE std::uint32_t scales_of() const { return call.span >> call.block_shift; }

  /// Values of scale block s of the span.
  WINNOW_DEVICE std::uint32_t values_of(std::uint64_t begin, std::uint64_t end,
                                        std::uint32_t s) const {
    const std::uint64_t first = begin + std::uint64_t{s} * call.block;
    if (first >= end) return 0;
    return end - first < call.block ? static_cast<std::uint32_t>(end - first) : call.block;
  }

  /// The scale block, of the span, of this thread's vector j.
  WINNOW_DEVICE std::uint32_t scale_of_vector(std::uint32_t j) const {
    return static_cast<std::uint32_t>(first_of(0, j)) >> call.block_shift;
  }

  /// The scale of block s of the span, to the message.
  WINNOW_DEVICE void write_scale(const QuantizeMessage& message, std::uint64_t begin,
                                 std::uint64_t end, std::uint32_t s, float scale) const {
    if (values_of(begin, end, s) == 0) return;
    const std::uint64_t at = (begin >> call.block_shift) + s;
    message.scales[at] = scale;
    const std::uint64_t scales = (message.count + call.block - 1) >> call.block_shift;
    if (at + 1 == scales && scales % 2 != 0) message.scales[scales] = 0;  // padding
  }

  WINNOW_DEVICE void measure_largest(Shared& shared, const QuantizeMessage& message,
                                     std::uint64_t begin, std::uint64_t end, Values& values) const {
    std::uint32_t largest[kQuantizeVectors] = {};
    for (std::uint64_t tile = begin; tile < end; tile += kQuantizeTile) {
      load(message, tile, values);
      for (std::uint32_t j = 0; j < kQuantizeVectors; ++j) {
        for (unsigned e = 0; e < 4; ++e) {
          const std::uint32_t size = magnitude(values.acc[j][e]);
          largest[j] = size > largest[j] ? size : largest[j];
        }
      }
    }
    if (call.block <= kUnit) {
      for (std::uint32_t& one : largest) one = simt::half_warp_max(one);
    } else if (call.block <= kOfVectors) {
      for (std::uint32_t& one : largest) one = simt::warp_max(one);
    } else {
      const std::uint32_t all = largest_of_warps(shared, largest[0], largest[1]);
      for (std::uint32_t& one : largest) one = all;
    }
    for (std::uint32_t j = 0; j < kQuantizeVectors; ++j) {
      values.scale[j] = Coding::scale_of(std::bit_cast<float>(largest[j]));
      const auto first = static_cast<std::uint32_t>(first_of(0, j));
      const std::uint32_t s = scale_of_vector(j);
      if (first == s << call.block_shift) write_scale(message, begin, end, s, values.scale[j]);
    }
  }

  /// The largest magnitude of a scale block of a warp's values, or of more.
  WINNOW_DEVICE std::uint32_t largest_of_warps(Shared& shared, std::uint32_t a,
                                               std::uint32_t b) const {
    static_assert(kQuantizeVectors == 2);
    std::uint32_t largest = simt::warp_max(a > b ? a : b);
    if (call.block == kOfWarp) return largest;
    const std::uint32_t warp = simt::thread() / simt::kLanes;
    if (simt::lane() == 0) shared.largest[warp] = largest;
    simt::barrier();
    const std::uint32_t block = call.block < kQuantizeTile ? call.block : kQuantizeTile;
    const std::uint32_t warps = block / kOfWarp, first = warp & ~(warps - 1);
    for (std::uint32_t w = first; w < first + warps; ++w) {
      largest = shared.largest[w] > largest ? shared.largest[w] : largest;
    }
    return largest;
  }

  /// Sums the addends of each scale block; thread s returns the sum of block s.
  WINNOW_DEVICE float sum(Shared& shared, const QuantizeMessage& message, std::uint64_t begin,
                          std::uint64_t end, Values& values, float factor) const {
    const std::uint32_t chains = scales_of() * kChains;
    const std::uint32_t block = call.block < kQuantizeTile ? call.block : kQuantizeTile;
    float chain[kChainsOfThread] = {};
    for (std::uint64_t tile = begin; tile < end; tile += kQuantizeTile) {
      load(message, tile, values);
      for (std::uint32_t j = 0; j < kQuantizeVectors; ++j) {
        const auto at = static_cast<std::uint32_t>(first_of(0, j));
        for (unsigned e = 0; e < 4; ++e) {
          shared.addend[at + e] = Coding::addend(values.acc[j][e]);
        }
      }
      simt::barrier();
      for (std::uint32_t q = 0; q < kChainsOfThread; ++q) {
        const std::uint32_t c = q * simt::kThreads + simt::thread();
        if (c >= chains) continue;
        const std::uint32_t from = c / kChains * block + c % kChains;
        for (std::uint32_t i = from; i < from + block; i += kUnit) {
          float addend[kUnit / kChains];  // all are on their way before the first is added
          WINNOW_UNROLLED
          for (std::uint32_t n = 0; n < kUnit / kChains; ++n) {
            addend[n] = shared.addend[i + n * kChains];
          }
          WINNOW_UNROLLED
          for (std::uint32_t n = 0; n < kUnit / kChains; ++n) chain[q] += addend[n] * factor;
        }
      }
      if (tile + kQuantizeTile < end) simt::barrier();  // before the next tile's
    }
    for (std::uint32_t q = 0; q < kChainsOfThread; ++q) {
      const std::uint32_t c = q * simt::kThreads + simt::thread();
      if (c < chains) shared.chain[c] = chain[q];
    }
    simt::barrier();
    if (simt::thread() >= scales_of()) return 0;
    float partial[kChains];
    for (std::uint32_t c = 0; c < kChains; ++c) {
      partial[c] = shared.chain[simt::thread() * kChains + c];
    }
    for (std::uint32_t width = kChains / 2; width > 0; width /= 2) {
      for (std::uint32_t c = 0; c < width; ++c) partial[c] += partial[c + width];
    }
    return partial[0];
  }

  WINNOW_DEVICE void measure_sums(Shared& shared, const QuantizeMessage& message,
                                  std::uint64_t begin, std::uint64_t end, Values& values) const {
    const float total = sum(shared, message, begin, end, values, 1);
    float seventeenth = 0;  // values::mean_of asks for it where the total overflows
    if (simt::barrier_or(!values::is_sum(total))) {
      seventeenth = sum(shared, message, begin, end, values, 0x1p-17F);
    }
    const std::uint32_t s = simt::thread();
    if (s < scales_of()) {
      const float mean = values::mean_of(values_of(begin, end, s), [&](float factor) {
        return factor == 1 ? total : seventeenth;
      });
      shared.scale[s] = Coding::scale_of_mean(mean);
      write_scale(message, begin, end, s, shared.scale[s]);
    }
    simt::barrier();
    for (std::uint32_t j = 0; j < kQuantizeVectors; ++j) {
      values.scale[j] = shared.scale[scale_of_vector(j)];
    }
  }

  WINNOW_DEVICE void code(const QuantizeMessage& message, std::uint64_t tile,
                          const Values& values) const {
    const RandomWords random(message);
    for (std::uint32_t j = 0; j < kQuantizeVectors; ++j) {
      const std::uint64_t first = first_of(tile, j);
      float scale = 0, inverse = 0;
      if constexpr (kHasScales) {
        scale = values.scale[j];
        inverse = Coding::inverse(scale);
      }
      Philox::Words words{};
      if constexpr (kRounding == Rounding::stochastic) {
        words = random.of(first / 4);
      }
      std::uint32_t codes[4];
      float missed[4];
      for (unsigned e = 0; e < 4; ++e) {
        const float x = values.acc[j][e];
        codes[e] = kRounding == Rounding::nearest ? Coding::nearest(x, inverse)
                                                  : Coding::stochastic(x, inverse, words[e]);
        missed[e] = x - Coding::decode(codes[e], scale);
      }
      store_vector(values.residual[j], values.stored[j], missed);
      for (unsigned e = 0; e < 4; ++e) {
        if ((values.added[j] >> e & 1) != 0) values.residual[j][e] += missed[e];
      }
      write_codes(message, first, codes);
    }
    unsigned added = 0;
    for (const unsigned bits : values.added) added |= bits;
    const bool finite = simt::ballot(added != 0) == 0;
    if (!finite && simt::lane() == 0 && call.not_finite != nullptr) {
      simt::atomic_or(call.not_finite, 1);
    }
  }

  /// 4 codes of values from `first` on, those beyond the count being 0.
  WINNOW_DEVICE void write_codes(const QuantizeMessage& message, std::uint64_t first,
                                 const std::uint32_t (&codes)[4]) const {
    if constexpr (kBits == 0) return;
    std::byte* const at = message.codes + first * kBits / 8;
    const bool is_inside = first < message.padded;
    if constexpr (kBits == 32) {
      if (first < message.padded) simt::store_word(at, codes[0] | std::uint64_t{codes[1]} << 32);
      if (first + 2 < message.padded) {
        simt::store_word(at + 8, codes[2] | std::uint64_t{codes[3]} << 32);
      }
    } else if constexpr (kBits == 1) {
      // 8 threads make a word.
      std::uint32_t word = (codes[0] | codes[1] << 1 | codes[2] << 2 | codes[3] << 3)
                           << simt::thread() % 8 * 4;
      for (unsigned step = 1; step < 8; step *= 2) word |= simt::shuffle_xor(word, step);
      if (is_inside && simt::thread() % 8 == 0) simt::store_word(at, word);
    } else {
      using Short = std::conditional_t<kBits == 4, std::uint16_t, std::uint8_t>;
      using Long = std::conditional_t<kBits == 16, std::uint64_t, std::uint32_t>;
      using Word = std::conditional_t<(kBits < 8), Short, Long>;
      const std::uint64_t low = codes[0] | std::uint64_t{codes[1]} << kBits;
      const std::uint64_t high = codes[2] | std::uint64_t{codes[3]} << kBits;
      if (is_inside) simt::store_word(at, static_cast<Word>(low | high << 2 * kBits));
    }
  }
};

/// acc of the owner that this rank is, whole; residuals stay. It codes nothing.
struct FeedbackOwn {
  QuantizeCall call;
  QuantizeMessage message;
  float* own;

  WINNOW_DEVICE void run() const {
    bool finite = true;
    for (std::uint64_t v = 4 * simt::grid_thread(); v < message.count;
         v += 4 * simt::grid_threads()) {
      const VectorAt at[1] = {find_vector(call, message, v)};
      float acc[1][4];
      load_acc(at, call, acc);
      for (unsigned e = 0; e < 4; ++e) finite = finite && is_finite(acc[0][e]);
      store_vector(own + v, elements_below(message.count, v), acc[0]);
    }
    if (!finite) simt::atomic_or(call.not_finite, 1);
  }
};

}  // namespace winnow::kernels::cuda
