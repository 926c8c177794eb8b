// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "bench/gpu/cuda_inputs.hpp"
#include "bench/gpu/cuda_rivals.hpp"

namespace winnow::bench {

namespace {

struct SortRoom {
  explicit SortRoom(std::size_t count)
      : keys(count),
        sorted_keys(count),
        positions(count),
        sorted_positions(count),
        scratch(sort_scratch(count)) {}
  DeviceArray<std::uint32_t> keys, sorted_keys, positions, sorted_positions;
  DeviceArray<std::byte> scratch;
};

}  // namespace

/// The rivals have no error feedback. A row counts the bytes that every selection needs: it reads
/// each element and writes the k largest.
void add_rival_rows(const CudaInputs& in, std::vector<CudaRow>& rows) {
  const auto room = std::make_shared<SortRoom>(in.count);
  const auto bytes = static_cast<double>(in.count * sizeof(float) + 8 * in.k);
  rows.push_back(
      {"rival: cub::DeviceRadixSort of magnitudes", bytes, [&in, room](std::size_t round) {
         sort_by_magnitude({.x = in.set(round).gradient.span().first(in.count),
                            .keys = room->keys.span(),
                            .sorted_keys = room->sorted_keys.span(),
                            .positions = room->positions.span(),
                            .sorted_positions = room->sorted_positions.span(),
                            .scratch = room->scratch.span()},
                           in.stream.get());
       }});
}

}  // namespace winnow::bench
