// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>
#include <winnow/winnow.hpp>

namespace winnow::tests {

/// Gradients of the kinds that find mistakes. Every rank can make every rank's.
enum class Kind { normal, heavy_tailed, all_equal, all_zero, mostly_zero, denormal };
std::vector<float> make_gradient(Kind kind, std::uint64_t count, int rank, int step,
                                 std::uint64_t id);

/// One parameter of a test bucket: what a Segment says, without the memory.
struct Parameter {
  std::uint64_t id;
  std::uint64_t count;
  int dimensions = 2;
};

/// All ranks of a compressed allreduce by the gather schedule in plain loops, from the laws'
/// text: the specification that AllReducer is compared with, bit for bit.
class Reference {
 public:
  Reference(int ranks, std::vector<Parameter> parameters, double density, ReduceOp op,
            float decay = 1);

  /// gradients[rank][parameter]. Returns the result of each parameter.
  std::vector<std::vector<float>> step(
      const std::vector<std::vector<std::vector<float>>>& gradients);

  const std::vector<float>& residual(int rank, std::size_t parameter) const {
    return residuals_[static_cast<std::size_t>(rank)][parameter];
  }

 private:
  int ranks_;
  std::vector<Parameter> parameters_;
  double density_;
  ReduceOp op_;
  float decay_;
  std::vector<std::vector<std::vector<float>>> residuals_;  // [rank][parameter]
};

/// A bucket of the test: memory and the segments over it, not contiguous.
class TestBucket {
 public:
  explicit TestBucket(const std::vector<Parameter>& parameters);
  void fill(Kind kind, int rank, int step);
  std::span<const Segment> segments() const { return segments_; }
  std::vector<std::vector<float>>& values() { return values_; }

 private:
  std::vector<Parameter> parameters_;
  std::vector<std::vector<float>> values_;
  std::vector<Segment> segments_;
};

/// gradients[rank][parameter] of one step.
std::vector<std::vector<std::vector<float>>> all_gradients(const std::vector<Parameter>& parameters,
                                                           Kind kind, int ranks, int step);

/// Whether both hold the same bits; NaN equals NaN, -0 differs from 0.
bool same_bits(std::span<const float> a, std::span<const float> b);

}  // namespace winnow::tests
