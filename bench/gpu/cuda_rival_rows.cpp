// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <memory>

#include "bench/gpu/cuda_inputs.hpp"
#include "bench/gpu/cuda_rivals.hpp"
#include "kernels/exec/place_memory.hpp"

namespace winnow::bench {

namespace {

struct SortRoom {
  explicit SortRoom(std::size_t count)
      : keys(count),
        sorted_keys(count),
        positions(count),
        sorted_positions(count),
        scratch(sort_scratch(count)) {}
  void sort(std::span<const float> x, StreamRef stream) {
    sort_by_magnitude({.x = x,
                       .keys = keys.span(),
                       .sorted_keys = sorted_keys.span(),
                       .positions = positions.span(),
                       .sorted_positions = sorted_positions.span(),
                       .scratch = scratch.span()},
                      stream.get());
  }

  DeviceArray<std::uint32_t> keys, sorted_keys, positions, sorted_positions;
  DeviceArray<std::byte> scratch;
};

struct CopyRoom {
  explicit CopyRoom(std::size_t count)
      : positions(count), values(count), scratch(copy_scratch(count)) {}

  DeviceArray<std::uint32_t> positions;
  DeviceArray<float> values;
  DeviceArray<std::byte> scratch;
};

}  // namespace

/// The rivals have no error feedback. A row counts the bytes that every selection needs: it reads
/// each element and writes the k largest.
void add_rival_rows(const CudaInputs& in, std::vector<CudaRow>& rows) {
  const auto gradient = [&in](std::size_t round) {
    return in.set(round).gradient.span().first(in.count);
  };
  const auto bytes = static_cast<double>(in.count * sizeof(float) + 8 * in.k);
  const auto sorting = std::make_shared<SortRoom>(in.count);
  rows.push_back(
      {"rival: cub::DeviceRadixSort of magnitudes", bytes,
       [&in, gradient, sorting](std::size_t round) { sorting->sort(gradient(round), in.stream); }});
  // A bound that keeps k of the first gradient, and about as many of the others.
  sorting->sort(gradient(0), in.stream);
  const float bound =
      std::bit_cast<float>(kernels::read(in.exec(), &sorting->sorted_keys.span()[in.k - 1]));
  const auto copying = std::make_shared<CopyRoom>(in.count);
  rows.push_back({"rival: thrust::copy_if above a bound that is known", bytes,
                  [&in, gradient, copying, bound](std::size_t round) {
                    (void)copy_above({.x = gradient(round),
                                      .bound = bound,
                                      .positions = copying->positions.span(),
                                      .values = copying->values.span(),
                                      .scratch = copying->scratch.span()},
                                     in.stream.get());
                  }});
}

}  // namespace winnow::bench
