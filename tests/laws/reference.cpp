// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/laws/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

namespace winnow::tests {

std::vector<float> make_gradient(Kind kind, std::uint64_t count, int rank, int step,
                                 std::uint64_t id) {
  std::seed_seq seed{static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(step), id, count};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(count);
  for (float& g : gradient) {
    switch (kind) {
      case Kind::normal:
        g = normal(random);
        break;
      case Kind::heavy_tailed: {
        const float tail = normal(random);
        g = std::exp(3 * normal(random)) * (tail < 0 ? -1.0F : 1.0F);
        break;
      }
      case Kind::all_equal:
        g = 0.75F;
        break;
      case Kind::all_zero:
        g = 0;
        break;
      case Kind::mostly_zero:
        g = random() % 200 == 0 ? normal(random) : 0.0F;
        break;
      case Kind::denormal:
        g = normal(random) * 1e-39F;
        break;
    }
  }
  return gradient;
}

Reference::Reference(int ranks, std::vector<Parameter> parameters, double density, ReduceOp op,
                     float decay)
    : ranks_(ranks), parameters_(std::move(parameters)), density_(density), op_(op), decay_(decay) {
  residuals_.resize(static_cast<std::size_t>(ranks));
  for (auto& rank : residuals_) {
    for (const Parameter& parameter : parameters_) rank.emplace_back(parameter.count, 0.0F);
  }
}

std::vector<std::vector<float>> Reference::step(
    const std::vector<std::vector<std::vector<float>>>& gradients) {
  std::vector<std::vector<float>> sums;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const std::size_t count = parameters_[p].count;
    const auto k =
        count == 0 ? 0
                   : std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(
                                                  density_ * static_cast<double>(count) - 1e-9)));
    std::vector<float> sum(count, 0.0F);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks_); ++rank) {
      std::vector<float>& acc = residuals_[rank][p];
      for (std::size_t i = 0; i < count; ++i) {
        const float carried = decay_ * acc[i];
        acc[i] = gradients[rank][p][i] + carried;
      }
      std::vector<std::size_t> order(count);
      std::iota(order.begin(), order.end(), std::size_t{0});
      const auto kept = order.begin() + static_cast<std::ptrdiff_t>(k);
      std::nth_element(order.begin(), kept, order.end(), [&](std::size_t a, std::size_t b) {
        const float x = std::fabs(acc[a]), y = std::fabs(acc[b]);
        return x > y || (x == y && a < b);
      });
      for (std::size_t i = 0; i < k; ++i) {
        sum[order[i]] += acc[order[i]];
        acc[order[i]] = 0;
      }
    }
    if (op_ == ReduceOp::average) {
      for (float& value : sum) value *= 1.0F / static_cast<float>(ranks_);
    }
    sums.push_back(std::move(sum));
  }
  return sums;
}

TestBucket::TestBucket(const std::vector<Parameter>& parameters) : parameters_(parameters) {
  for (const Parameter& parameter : parameters) values_.emplace_back(parameter.count);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    segments_.push_back(Segment{
        .elements = values_[p], .id = parameters[p].id, .dimensions = parameters[p].dimensions});
  }
}

void TestBucket::fill(Kind kind, int rank, int step) {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const auto gradient = make_gradient(kind, parameters_[p].count, rank, step, parameters_[p].id);
    std::ranges::copy(gradient, values_[p].begin());
  }
}

std::vector<std::vector<std::vector<float>>> all_gradients(const std::vector<Parameter>& parameters,
                                                           Kind kind, int ranks, int step) {
  std::vector<std::vector<std::vector<float>>> gradients;
  for (int rank = 0; rank < ranks; ++rank) {
    auto& of_rank = gradients.emplace_back();
    for (const Parameter& parameter : parameters) {
      of_rank.push_back(make_gradient(kind, parameter.count, rank, step, parameter.id));
    }
  }
  return gradients;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace winnow::tests
