// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/value_coding.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/feedback.hpp"
#include "kernels/arithmetic/value.hpp"
#include "kernels/arithmetic/value_layout.hpp"

namespace winnow::kernels::reference {

namespace {

float get_scale(std::span<const std::byte> coded, const ValueFormat& format, std::uint64_t i) {
  float scale = 0;
  if (format.block != 0) {
    std::memcpy(&scale, coded.data() + i / format.block * sizeof scale, sizeof scale);
  }
  return scale;
}

/// Codes the k values of one message, block by block, and leaves in them what the codes miss.
template <class Coding>
void code_message(const ValueFormat& format, const RandomKey& key, std::span<float> values,
                  std::span<std::byte> out) {
  const ValueLayout layout(format, values.size());
  std::fill(out.begin(), out.end(), std::byte{0});
  std::byte* const codes = out.data() + layout.scale_bytes;
  const std::size_t block = format.block != 0 ? format.block : 1;
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const std::size_t end = std::min(begin + block, values.size());
    const float scale = Coding::scale(values.subspan(begin, end - begin));
    const float inverse = Coding::inverse(scale);
    if (format.block != 0) {
      std::memcpy(out.data() + begin / block * sizeof scale, &scale, sizeof scale);
    }
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t code = format.rounding == Rounding::nearest
                                     ? Coding::nearest(values[i], inverse)
                                     : Coding::stochastic(values[i], inverse, random_word(key, i));
      put_code(codes, format.coding->bits, i, code);
      values[i] = values[i] - Coding::decode(code, scale);
    }
  }
}

/// The element at a position; no residual in a gap.
struct Element {
  float gradient = 0;
  float* residual = nullptr;
  bool adds = false;  // what the code misses to the residual, which else becomes that
};

Element find(std::span<const FeedbackPiece> pieces, std::uint64_t position) {
  for (const FeedbackPiece& piece : pieces) {
    if (position < piece.base || position - piece.base >= piece.gradient.size()) continue;
    const std::size_t i = position - piece.base;
    return {read_element(piece.gradient, i), &piece.residual[i]};
  }
  return {};
}

bool are_sound(const ValueFormat& format, std::uint64_t k, std::span<const std::byte> coded) {
  const ValueLayout layout(format, k);
  const std::uint32_t bits = format.coding->bits;
  const std::byte* const codes = coded.data() + layout.scale_bytes;
  bool valid = true;
  visit_coding(*format.coding, [&](auto coding) {
    using Coding = decltype(coding);
    for (std::uint64_t i = 0; i < layout.scales * format.block; i += format.block) {
      valid = valid &&
              values::is_scale<Coding>(std::bit_cast<std::uint32_t>(get_scale(coded, format, i)));
    }
    if constexpr (Coding::kInvalidCode != values::kNone) {
      for (std::uint64_t i = 0; i < k; ++i) {
        const std::uint64_t code = get_code(codes, bits, i);
        valid = valid && (code & Coding::kInvalidMask) != Coding::kInvalidCode;
      }
    }
  });
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  valid = valid && std::all_of(coded.data() + layout.scales * sizeof(float), codes, is_zero);
  valid = valid && std::all_of(codes + layout.code_bytes,
                               codes + (layout.bytes - layout.scale_bytes), is_zero);
  const std::uint64_t last_bits = k * bits % 8;
  if (last_bits != 0) {
    valid = valid && is_zero(codes[layout.code_bytes - 1] >> static_cast<int>(last_bits));
  }
  return valid;
}

}  // namespace

void quantize(const Exec&, const ValueFormat& format, const RandomKey& key, std::span<float> values,
              std::span<std::byte> out) {
  visit_coding(*format.coding,
               [&](auto coding) { code_message<decltype(coding)>(format, key, values, out); });
}

/// An owner after the other: collect its acc, code them as quantize does, put back what the codes
/// miss.
void feedback_quantize(const Exec& exec, const FeedbackQuantizeJob& job) {
  for (std::uint32_t owner = 0; owner < job.partition.owners(); ++owner) {
    const std::uint64_t count = job.partition.local_count(owner);
    Workspace::Scope scope(*exec.workspace);
    const std::span<float> values =
        owner == job.self ? job.own : exec.workspace->take<float>(count);
    const std::span<Element> elements = exec.workspace->take<Element>(count);
    for (std::uint64_t v = 0; v < count; ++v) {
      elements[v] = find(job.pieces.host, job.partition.position(owner, v));
      values[v] = 0;
      if (elements[v].residual == nullptr) continue;
      values[v] = feedback(elements[v].gradient, job.decay, *elements[v].residual);
      if (std::isfinite(values[v])) continue;
      *job.not_finite = 1;
      if (owner == job.self) continue;
      values[v] = 0;
      elements[v].adds = true;
    }
    if (owner == job.self) continue;
    RandomKey stage = job.key;
    stage.stage += owner;
    reference::quantize(exec, job.format, stage, values, job.out[owner]);
    for (std::uint64_t v = 0; v < count; ++v) {
      const auto& [gradient, residual, adds] = elements[v];
      if (residual != nullptr) *residual = adds ? *residual + values[v] : values[v];
    }
  }
}

void check_values(const Exec&, const ValueFormat& format, std::span<const CheckValuesJob> jobs) {
  for (const CheckValuesJob& job : jobs) {
    if (!are_sound(format, job.k, job.coded)) *job.refused = 1;
  }
}

void dequantize(const Exec&, const ValueFormat& format, std::uint64_t k,
                std::span<const std::byte> coded, std::uint64_t begin, std::span<float> out) {
  const ValueLayout layout(format, k);
  visit_coding(*format.coding, [&](auto coding) {
    for (std::size_t j = 0; j < out.size(); ++j) {
      const std::uint32_t code =
          get_code(coded.data() + layout.scale_bytes, format.coding->bits, begin + j);
      out[j] = coding.decode(code, get_scale(coded, format, begin + j));
    }
  });
}

}  // namespace winnow::kernels::reference
