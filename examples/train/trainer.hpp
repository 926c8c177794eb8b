// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include <winnow/allreducer.hpp>

#include "train/device/device.hpp"
#include "train/group.hpp"
#include "train/model.hpp"
#include "train/progress.hpp"
#include "train/text.hpp"

namespace train {

/// How every run trains.
struct Recipe {
  Shape shape;
  std::size_t batch = 32;  ///< windows per rank and step
  float rate = 0.1f;
  float last_rate_share = 0.05f;  ///< cosine decay ends at this share of `rate`
  std::uint64_t warm_up = 0;      ///< steps in which the rate rises to `rate`
  float momentum = 0.9f;
  /// Compressed runs take gradients at the weights minus this share of the residual; unset:
  /// AllReducer::look_ahead_share.
  std::optional<float> look_ahead;
  std::uint64_t steps = 1000;
  std::uint64_t points = 0;  ///< of each curve; 0: every 50 steps, or 20 in a short run
  std::uint64_t seed = 1;
  std::size_t held_out_windows = 16384;  ///< at most, over all ranks
  bool overlap = false;                  ///< reduce each layer while the next one back-propagates
  /// This rank's device; the reducer's buckets lie in its memory.
  std::shared_ptr<Device<float>> device = cpu_device<float>();
};

/// One point of a run's curves.
struct Point {
  std::uint64_t step = 0;        ///< steps done
  double seconds = 0;            ///< of the slowest rank, without evaluation
  double training_loss = 0;      ///< nats per byte: mean since the last point, over all ranks
  double held_out_loss = 0;      ///< nats per byte
  std::uint64_t wire_bytes = 0;  ///< sent so far by the busiest rank
};

/// Where a step's time goes, in seconds.
struct StepTime {
  double step = 0;       ///< in all
  double compute = 0;    ///< minibatch, look-ahead, forward, backward and update
  double wait = 0;       ///< until the slowest rank has its gradient; with overlap, for the sums
  double allreduce = 0;  ///< the call; 0 with overlap, when it runs beside `compute`
};

/// The result of one training, equal on all ranks.
struct Run {
  std::uint64_t seed = 1;
  std::string compressor, schedule, coding;
  std::vector<Point> curve;
  float look_ahead = 0;  ///< the share of the residual; 0: without look-ahead
  StepTime time;         ///< medians over steps, each the largest of any rank
  double wire_bytes_per_step = 0, dense_wire_bytes_per_step = 0;
  std::uint64_t parameters_hash = 0;
};

/// Trains the model from the seed's start, with gradients averaged by `reducer`. Collective. Throws
/// Exit if the ranks' parameters differ.
Run train(const Recipe& recipe, const Corpus& corpus, winnow::AllReducer& reducer, Group& group,
          Progress& progress);

/// Of all bits, in order.
std::uint64_t hash_of(std::span<const float> parameters);

/// Mean loss over held-out `targets`, divided among the ranks and summed in rank order.
double held_out_loss(Model<float>& model, const Corpus& corpus,
                     std::span<const std::uint64_t> targets, Group& group);

}  // namespace train
