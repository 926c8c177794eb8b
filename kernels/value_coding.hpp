// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/partition.hpp"
#include "kernels/arithmetic/philox.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::kernels {

enum class Rounding : std::uint8_t { nearest, stochastic };

/// One parameter's stretch of a part: equal sizes, no overlap. `base` is the position of the first
/// element, a multiple of 64.
struct FeedbackPiece {
  ConstElements gradient;  ///< float32, bf16 or fp16; acc is computed from the widened elements
  std::span<float> residual;
  std::uint64_t base = 0;
};

/// How the values of a message are written. A line of the table of value codings.
struct ValueCoding {
  std::uint8_t id;  ///< as it travels, 1 to 15; never given to another coding
  std::string_view name;
  std::uint32_t default_block;  ///< values that share a scale; 0: this coding has no scales
  bool stochastic;              ///< whether it can round stochastically
  std::uint32_t bits;           ///< of a code; 0: all values of a block decode to its scale
  bool has_zero;                ///< whether 0 decodes to 0
  bool one_sign = false;        ///< it is for values of one sign, which its scales have
};

/// A coding with its parameters: what the header of a message says.
struct ValueFormat {
  const ValueCoding* coding = nullptr;
  std::uint32_t block = 0;  ///< a power of two from 64 to 65536 if the coding has scales, else 0
  Rounding rounding = Rounding::nearest;
};

/// All codings of kernels/arithmetic/value.hpp, by id from 1.
std::span<const ValueCoding> value_codings();

/// Whether there is a coding, and block and rounding are what it can do.
bool valid_format(const ValueFormat& format);

/// Bytes of k values: ceil(k / block) float32 scales, if any, then k codes of `bits` bits, packed
/// little-endian; each of the two padded with zeros to a multiple of 8. Safe for k below 2^56.
std::uint64_t value_bytes(const ValueFormat& format, std::uint64_t k);

/// Codes `values` (finite) into value_bytes(format, values.size()) bytes of `out`, 8-byte aligned,
/// and leaves in each value what the code misses: fl(value - decoded), 0 for float32. That may be
/// infinite where a coding for one sign meets both. Work of `together` shares launches.
void quantize(const Exec& exec, const ValueFormat& format, const RandomKey& key,
              std::span<float> values, std::span<std::byte> out);

/// The input and output of feedback_quantize. Spans and words lie in the memory of exec.place.
struct FeedbackQuantizeJob {
  /// Ascend by base; positions between them are gaps, whose acc is 0. Gradients of one type.
  Placed<FeedbackPiece> pieces = {};
  float decay = 1;
  Partition partition{1, 0};
  std::uint32_t self = 0xffffffff;  ///< an owner who gets no message, or none
  ValueFormat format = {};
  RandomKey key = {};  ///< rank and call name the sender
  /// For each owner: value_bytes(format, local_count(owner)) bytes, 8-byte aligned; of self
  /// ignored.
  std::span<const std::span<std::byte>> out = {};
  std::span<float> own = {};            ///< local_count(self) elements, or none without self
  std::uint32_t* not_finite = nullptr;  ///< becomes 1 if an acc is not finite
};

/// Error feedback and coding of all elements in one fused pass over memory: for each position
///   acc = gradient + decay * residual (two roundings)
/// goes to owner o's message as value number local(position), and residual = fl(acc - decoded); the
/// gradient is only read. For owner `self` acc itself goes to own[local], and the residual stays as
/// it is. Where acc is not finite, 0 is coded (own: acc itself), and residual = fl(residual -
/// decoded): what travels is missing from it there too. Value number v of owner o takes random
/// number v of stage key.stage + o. On the host exec.workspace is required; on a device
/// messages share launches, 32 of them each.
void feedback_quantize(const Exec& exec, const FeedbackQuantizeJob& job);

/// Coded values that came.
struct CheckValuesJob {
  std::uint64_t k = 0;
  std::span<const std::byte> coded = {};  ///< value_bytes(format, k), 8-byte aligned
  std::uint32_t* refused = nullptr;       ///< in the memory of exec.place
};

/// For each job: *refused becomes 1 if quantize cannot have written `coded`, else it stays: scales
/// are not negative (but of ValueCoding::one_sign) and so small that they decode to finite values,
/// no code is outside the coding's range, padding is zero. Values without scales are not looked at.
void check_values(const Exec& exec, const ValueFormat& format,
                  std::span<const CheckValuesJob> jobs);

/// Decodes values [begin, begin + out.size()) of k.
void dequantize(const Exec& exec, const ValueFormat& format, std::uint64_t k,
                std::span<const std::byte> coded, std::uint64_t begin, std::span<float> out);

}  // namespace winnow::kernels
