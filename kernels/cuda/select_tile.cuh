// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/arithmetic/feedback.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/select_task.hpp"
#include "kernels/cuda/simt.hpp"
#include "kernels/cuda/vectors.cuh"

// A tile of a selection. Each thread has kSelectVectors vectors of it.

namespace winnow::kernels::cuda {

/// The first element of this thread's vector j of a tile. Vector j of all threads comes before
/// vector j + 1 of any.
WINNOW_DEVICE std::uint32_t first_of(std::uint32_t tile, std::uint32_t j) {
  return tile * kSelectTile + j * (simt::kThreads * 4) + simt::thread() * 4;
}

/// Bits of all elements of a thread's vectors, and those of vector j.
inline constexpr std::uint32_t kAllOfThread = (1U << 4 * kSelectVectors) - 1;
WINNOW_DEVICE unsigned vector_of(std::uint32_t bits, std::uint32_t j) {
  return bits >> 4 * j & 0xf;
}

/// The count of vector j, of 4 that are summed together in 16 bits each.
WINNOW_DEVICE std::uint32_t field(std::uint64_t counts, std::uint32_t j) {
  return static_cast<std::uint32_t>(counts >> 16 * j & 0xffff);
}

/// Places in a tile, in order, for what a thread has counted in its 4 vectors.
struct Places {
  std::uint64_t first = 0;  ///< of vector j, in field j: at most the tile's elements
  std::uint32_t total = 0;  ///< in the whole tile

  WINNOW_DEVICE Places() {}
  WINNOW_DEVICE explicit Places(const simt::Scanned& scanned) {
    const std::uint64_t to_end = scanned.total * 0x0001'0001'0001'0001U;  // of each vector
    first = scanned.before + (to_end << 16);
    total = field(to_end, 3);
  }
};

/// A tile of a task's gradient and residual.
struct SelectTile {
  const SelectTask& task;
  std::uint32_t tile;
  bool whole;  ///< all elements are there, in vectors: the block moves them without another look

  WINNOW_DEVICE SelectTile(const SelectTask& of, std::uint32_t number)
      : task(of),
        tile(number),
        whole(of.count / kSelectTile > number && of.gradient.are_vectors() &&
              is_vector(of.residual)) {}

  /// Bits of this thread's elements that are there.
  WINNOW_DEVICE std::uint32_t elements() const {
    std::uint32_t here = 0;
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      here |= elements_below(task.count, first_of(tile, j)) << 4 * j;
    }
    return here;
  }

  /// Gradient and residual of the elements in `here`.
  WINNOW_DEVICE void load(std::uint32_t here, float (&gradient)[kSelectVectors][4],
                          float (&residual)[kSelectVectors][4]) const {
    if (whole && task.gradient.are_floats()) {
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        simt::load4(task.gradient.floats() + first_of(tile, j), gradient[j]);
      }
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        simt::load4(task.residual + first_of(tile, j), residual[j]);
      }
      return;
    }
    if (whole) {
      load_whole_halves(gradient, residual);
      return;
    }
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      task.gradient.load(first_of(tile, j), vector_of(here, j), gradient[j]);
      load_vector(task.residual + first_of(tile, j), vector_of(here, j), residual[j]);
    }
  }

  /// Has caches bring the tile nearer, if it is one of this task and whole.
  WINNOW_DEVICE void prefetch() const {
    if (!whole) return;
    constexpr std::uint32_t kLine = 128, kElements = kLine / sizeof(float);
    constexpr std::uint32_t kLines = kSelectTile / kElements;
    const std::uint32_t lines = task.gradient.are_floats() ? kLines : kLines / 2;
    const std::byte* const gradient =
        static_cast<const std::byte*>(task.gradient.from(tile * kSelectTile).data);
    const float* const residual = task.residual + tile * kSelectTile;
    for (std::uint32_t line = simt::thread(); line < kLines + lines; line += simt::kThreads) {
      if (line < kLines) {
        simt::prefetch(residual + line * kElements);
      } else {
        simt::prefetch(gradient + (line - kLines) * kLine);
      }
    }
  }

  /// Replaces the gradients by what the precondition makes of them.
  WINNOW_DEVICE void make_updates(std::uint32_t here, const float (&residual)[kSelectVectors][4],
                                  float (&gradient)[kSelectVectors][4]) const {
    const Precondition& by = task.precondition;
    const bool has_moment = by.has_moment();
    float moment[kSelectVectors][4] = {};
    if (has_moment && whole && is_vector(by.moment)) {
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        simt::load4(by.moment + first_of(tile, j), moment[j]);
      }
    } else if (has_moment) {
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        load_vector(by.moment + first_of(tile, j), vector_of(here, j), moment[j]);
      }
    }
    WINNOW_UNROLLED
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      WINNOW_UNROLLED
      for (unsigned e = 0; e < 4; ++e) {
        const Preconditioned made = by.of(gradient[j][e], moment[j][e], residual[j][e],
                                          [](float x) { return simt::root(x); });
        gradient[j][e] = made.update;
        moment[j][e] = made.moment;
      }
      if (has_moment) {
        store_vector(by.moment + first_of(tile, j), vector_of(here, j), moment[j]);
      }
    }
  }

  /// acc becomes the residual where it is finite, and 0 where moved(j) has the bit of an element
  /// of vector j. The gradient of other elements is marked, and becomes zero where acc is finite,
  /// if it is to.
  template <class Moved>
  WINNOW_DEVICE void store(std::uint32_t finite, const Moved& moved,
                           const float (&acc)[kSelectVectors][4]) const {
    const auto left_of = [&](std::uint32_t j, float(&left)[4]) {
      const unsigned moved_of = moved(j);
      for (unsigned e = 0; e < 4; ++e) left[e] = (moved_of >> e & 1) != 0 ? 0 : acc[j][e];
    };
    if (whole && finite == kAllOfThread) {
      constexpr float kZero[4] = {};
      WINNOW_UNROLLED
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
        float left[4];
        left_of(j, left);
        simt::store4(task.residual + first_of(tile, j), left);
        if (task.zero_gradient) task.gradient.store(first_of(tile, j), 0xf, kZero);
      }
      return;
    }
    const std::uint32_t here = elements();
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      float left[4];
      left_of(j, left);
      store_vector(task.residual + first_of(tile, j), vector_of(finite, j), left);
      leave_gradient(first_of(tile, j), vector_of(here, j), vector_of(finite, j));
    }
  }

 private:
  WINNOW_DEVICE void leave_gradient(std::uint32_t first, unsigned here, unsigned finite) const {
    const auto mark = std::bit_cast<float>(0x7fc00000U);  // NaN
    float left[4];
    for (unsigned e = 0; e < 4; ++e) left[e] = (finite >> e & 1) != 0 ? 0 : mark;
    task.gradient.store(first, task.zero_gradient ? here : here & ~finite, left);
  }

  /// The same loads for elements of 16 bits: all are on their way before one is widened.
  WINNOW_DEVICE void load_whole_halves(float (&gradient)[kSelectVectors][4],
                                       float (&residual)[kSelectVectors][4]) const {
    std::uint64_t word[kSelectVectors];
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      word[j] = simt::load_word<std::uint64_t>(
          reinterpret_cast<const std::byte*>(task.gradient.halves() + first_of(tile, j)));
    }
    for (std::uint32_t j = 0; j < kSelectVectors; ++j) {
      simt::load4(task.residual + first_of(tile, j), residual[j]);
    }
    if (task.gradient.type == ElementType::bf16) {
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) widen_word<BFloat16>(word[j], gradient[j]);
    } else {
      for (std::uint32_t j = 0; j < kSelectVectors; ++j) widen_word<Float16>(word[j], gradient[j]);
    }
  }
};

}  // namespace winnow::kernels::cuda
