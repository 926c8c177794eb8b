// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>
#include <winnow/winnow.hpp>

#include "kernels/exec/place_memory.hpp"
#include "tests/harness/bucket_place.hpp"

namespace winnow::tests {

/// Reads from the memory of exec.place, once everything enqueued there is done.
void read_back(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from);

/// A test's AllReducer with buckets in host memory. If bucket_place() says otherwise, copies of
/// them lie there: one test covers both.
class Reducer {
 public:
  Reducer(const std::shared_ptr<Transport>& transport, const Options& options)
      : place_(bucket_place()), reducer_(transport, options, place_) {}

  void all_reduce(std::span<const Segment> bucket, std::optional<ReduceOp> op = {});
  void all_reduce(const Elements& elements, std::uint64_t id, std::optional<ReduceOp> op = {});
  void all_reduce(const ConstElements& input, const Elements& output, std::uint64_t id,
                  std::optional<ReduceOp> op = {});
  /// AllReducer::reduce_scatter. Leaves `input` as it is.
  void reduce_scatter(const ConstElements& input, const Elements& output, std::uint64_t id,
                      std::optional<ReduceOp> op = {});

  std::vector<float> residual(std::uint64_t id) const;
  /// AllReducer::look_ahead, out of place and in place, which must agree.
  std::vector<float> look_ahead(std::uint64_t id, std::span<const float> weights,
                                float share) const;
  void begin_step() { reducer_.begin_step(); }
  void discard_step() { reducer_.discard_step(); }
  void discard_step(std::span<const std::uint64_t> ids) { reducer_.discard_step(ids); }
  void scale_residuals(float factor) { reducer_.scale_residuals(factor); }
  Stats last() const { return reducer_.last(); }
  const Topology& topology() const { return reducer_.topology(); }

 private:
  struct Copy {
    kernels::PlaceArray<std::byte> elements, input;
  };
  Segment copy_in(const Segment& segment);

  Exec place_;
  AllReducer reducer_;
  std::map<std::uint64_t, Copy> copies_;  // by parameter
};

}  // namespace winnow::tests
