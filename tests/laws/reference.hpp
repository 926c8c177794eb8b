// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include <winnow/winnow.hpp>

#include "kernels/value_coding.hpp"

namespace winnow::tests {

/// Gradients of kinds that reveal mistakes. Every rank can make every rank's.
enum class Kind { normal, heavy_tailed, all_equal, all_zero, mostly_zero, denormal };
std::vector<float> make_gradient(Kind kind, std::uint64_t count, int rank, int step,
                                 std::uint64_t id);

/// One parameter of a test bucket: a Segment without its memory.
struct Parameter {
  std::uint64_t id;
  std::uint64_t count;
  int dimensions = 2;
};

/// Links for tests that do not test plans: measuring takes passes over memory, which a sanitizer
/// makes slow.
inline constexpr const char* kGivenLinks = "pass=10GB/s";

/// The reference's options, in the terms of Options.
struct Recipe {
  double density = 1;
  ReduceOp op = ReduceOp::average;
  float decay = 1;
  bool balanced = false;  ///< the schedule; else gather
  bool doubling = false;  ///< the schedule
  bool shared = false;    ///< the schedule
  bool randomk = false;   ///< draws positions instead of the largest
  double sums = 0;        ///< of balanced: the density of what owners keep of sums; 0: density
  /// If set, keeps elements whose magnitude exceeds it; density is then ignored, but must not be 1.
  std::optional<float> threshold = {};
  kernels::ValueFormat value{.coding = &kernels::value_codings().front()};
  std::uint64_t seed = 0;
  std::optional<Topology> two_level = {};  ///< if set, the schedule runs between its nodes
  // For random numbers, if the ranks here are those of a rail:
  std::vector<int> numbers = {};  ///< of the ranks; empty: 0, 1, ...
  std::uint64_t stage = 0;        ///< the first
  std::uint32_t part = 0;         ///< for drawn positions: the number of the part
};

/// All ranks of a compressed allreduce in plain loops, from the text of the laws: the specification
/// with which AllReducer is compared bit for bit. From the library it uses only what has its own
/// specification: the plain bodies of the value codings, and Partition.
class Reference {
 public:
  Reference(int ranks, std::vector<Parameter> parameters, const Recipe& recipe);

  /// gradients[rank][parameter]. Returns the result of each parameter.
  std::vector<std::vector<float>> step(
      const std::vector<std::vector<std::vector<float>>>& gradients);

  const std::vector<float>& residual(int rank, std::size_t parameter) const {
    return residuals_[static_cast<std::size_t>(rank)][parameter];
  }

 private:
  /// An element of a message: which one, and its value.
  struct Entry {
    std::size_t parameter, element;
    float value;
    bool stays = false;  // only fills the message up, as 0: the residual keeps its value
  };
  static std::uint64_t kept(double density, std::uint64_t count);
  std::vector<std::uint64_t> bases() const;
  std::vector<Entry> largest(const std::vector<Entry>& competing, double density) const;
  std::vector<Entry> code(std::vector<Entry>& entries, std::uint64_t rank, std::uint64_t stage);
  std::vector<std::vector<float>> gather();
  std::vector<std::vector<float>> balance();
  std::vector<std::vector<float>> zeros() const;
  std::vector<Entry> drawn(std::uint64_t count,
                           const std::function<std::uint64_t(std::uint64_t)>& position) const;
  std::vector<std::vector<float>> share();

  /// One rail's share in two levels: stretches of parameters, as parameters.
  struct Rail {
    struct Stretch {
      std::size_t parameter;
      std::uint64_t begin, count;
    };
    std::vector<int> servers;  // by node
    std::vector<Stretch> stretches;
    std::unique_ptr<Reference> inner;  // its ranks are the nodes
  };
  std::vector<Rail> make_rails(const Topology& topology) const;
  std::vector<std::vector<float>> step_in_two_levels(
      const Topology& topology, const std::vector<std::vector<std::vector<float>>>& gradients);

  int ranks_;
  std::vector<Parameter> parameters_;
  Recipe recipe_;
  std::uint64_t calls_ = 0;
  std::vector<std::vector<std::vector<float>>> residuals_;  // [rank][parameter]
  std::vector<Rail> rails_;                                 // in two levels
};

/// A test's bucket: memory and segments over it, not contiguous.
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

/// Returns whether both hold the same bits; NaN equals NaN, -0 differs from 0.
bool same_bits(std::span<const float> a, std::span<const float> b);

}  // namespace winnow::tests
