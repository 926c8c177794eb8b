// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <numeric>
#include <sstream>
#include <utility>

#include "train/exit.hpp"
#include "train/settings.hpp"
#include "train/sgd.hpp"

namespace train {

namespace {

using Clock = std::chrono::steady_clock;

/// Windows per evaluation, which bounds the memory of activations.
constexpr std::size_t kEvaluationBatch = 256;

std::uint64_t steps_between_points(const Recipe& recipe) {
  if (recipe.points > 0) return std::max<std::uint64_t>(recipe.steps / recipe.points, 1);
  return std::clamp<std::uint64_t>(recipe.steps / 20, 1, 50);
}

/// Measures the seconds in which a device finished its work since the last call.
class Lap {
 public:
  explicit Lap(Memory& device) : device_(device) {}
  double operator()() {
    device_.synchronize();
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  Memory& device_;
  Clock::time_point last_ = Clock::now();
};

/// The gradients of some tensors of the model, as a bucket that makes updates of them.
std::vector<winnow::Segment> bucket_of(Model<float>& model, std::span<const Tensor> tensors,
                                       float rate) {
  std::vector<winnow::Segment> bucket;
  for (const Tensor& tensor : tensors) {
    bucket.push_back({.elements = model.gradients().subspan(tensor.begin, tensor.count),
                      .id = tensor.begin,
                      .dimensions = tensor.dimensions,
                      .rate = rate,
                      .name = tensor.name});
  }
  return bucket;
}

/// A model whose gradients are taken ahead of its weights, by a share of what this rank has not
/// sent yet. Without look-ahead its parameters are the weights; otherwise these lie apart.
class Ahead {
 public:
  Ahead(Model<float>& model, const winnow::AllReducer& reducer, float share,
        std::shared_ptr<Device<float>> device)
      : model_(model),
        reducer_(reducer),
        share_(share),
        kept_(std::move(device), share > 0 ? model.parameters().size() : 0) {
    if (share_ > 0) copy(model_.parameters(), kept_.span(), 0);
  }

  /// What the optimizer updates: equal on all ranks.
  std::span<float> weights() { return share_ > 0 ? kept_.span() : model_.parameters(); }
  /// The model's parameters become the weights minus the share of the residual.
  void look() { bring(share_); }
  /// They become the weights.
  void return_to_weights() { bring(0); }

 private:
  void bring(float share) {
    if (share_ > 0) copy(kept_.span(), model_.parameters(), share);
  }
  void copy(std::span<const float> from, std::span<float> to, float share) {
    for (const Tensor& tensor : model_.tensors()) {
      reducer_.look_ahead(tensor.begin, from.subspan(tensor.begin, tensor.count),
                          to.subspan(tensor.begin, tensor.count), share);
    }
  }

  Model<float>& model_;
  const winnow::AllReducer& reducer_;
  float share_;
  Array<float> kept_;
};

float share_of(const Recipe& recipe, const winnow::AllReducer& reducer) {
  if (reducer.options().compressor == kNone) return 0;  // nothing waits
  return recipe.look_ahead.value_or(reducer.look_ahead_share(recipe.momentum));
}

double sum_over_ranks(double mine, Group& group) {
  const std::vector<double> all = group.gather(mine);
  return std::accumulate(all.begin(), all.end(), 0.0);
}

double median(const std::vector<StepTime>& times, double StepTime::*part) {
  std::vector<double> values;
  for (const StepTime& time : times) values.push_back(time.*part);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class T>
T most_of_any_rank(const T& mine, Group& group) {
  const std::vector<T> all = group.gather(mine);
  return *std::max_element(all.begin(), all.end());
}

StepTime slowest_medians(const std::vector<StepTime>& times, Group& group) {
  StepTime slowest;
  for (double StepTime::*part :
       {&StepTime::step, &StepTime::compute, &StepTime::wait, &StepTime::allreduce}) {
    slowest.*part = most_of_any_rank(median(times, part), group);
  }
  return slowest;
}

/// The hash of the parameters; the run is worthless unless all ranks agree on it.
std::uint64_t agreed_hash(std::span<const float> parameters, Group& group) {
  const std::uint64_t hash = hash_of(parameters);
  const std::vector<std::uint64_t> all = group.gather(hash);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    std::ostringstream message;
    message << "the ranks disagree: the parameters of rank " << rank
            << " differ from those of rank 0 after training (hash " << std::hex << all[rank]
            << ", not " << all[0] << ")";
    throw Exit(kFailureStatus, message.str());
  }
  return hash;
}

}  // namespace

std::uint64_t hash_of(std::span<const float> parameters) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const float parameter : parameters) {
    hash = (hash ^ std::bit_cast<std::uint32_t>(parameter)) * 0x100000001b3u;
  }
  return hash;
}

double held_out_loss(Model<float>& model, const Corpus& corpus,
                     std::span<const std::uint64_t> targets, Group& group) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  const std::size_t begin = targets.size() * rank / ranks;
  const std::size_t end = targets.size() * (rank + 1) / ranks;
  double loss = 0;
  for (std::size_t at = begin; at < end; at += kEvaluationBatch) {
    loss += model.loss({corpus.bytes(), targets.subspan(at, std::min(kEvaluationBatch, end - at))});
  }
  return sum_over_ranks(loss, group) / static_cast<double>(targets.size());
}

Run train(const Recipe& recipe, const Corpus& corpus, winnow::AllReducer& reducer, Group& group,
          Progress& progress) {
  Device<float>& device = *recipe.device;
  Model<float> model(recipe.shape, recipe.seed, recipe.device);
  Sgd optimizer(recipe.momentum, recipe.device);
  const Schedule rates{recipe.rate, recipe.last_rate_share, recipe.warm_up, recipe.steps};
  std::vector<winnow::Work> works;  // of the current step
  const std::vector<std::uint64_t> held_out = corpus.held_out(recipe.held_out_windows);
  const std::uint64_t interval = steps_between_points(recipe);
  std::vector<std::uint64_t> targets(recipe.batch);
  std::vector<StepTime> times;
  Run run{.seed = recipe.seed,
          .compressor = reducer.options().compressor,
          .look_ahead = share_of(recipe, reducer)};
  Ahead ahead(model, reducer, run.look_ahead, recipe.device);
  progress.begin_run(run.compressor, recipe.steps);

  double seconds = 0;  // of this rank, over all steps
  double loss = 0;     // of this rank, summed over the windows since the last point
  double windows = 0;
  for (std::uint64_t step = 0; step < recipe.steps; ++step) {
    const float rate = rates.rate(step);
    StepTime time;
    Lap lap(device);
    ahead.look();
    corpus.sample(recipe.seed, step, group.rank(), targets);
    windows += static_cast<double>(targets.size());
    if (recipe.overlap) {
      loss +=
          model.loss_and_gradients({corpus.bytes(), targets}, [&](std::span<const Tensor> tensors) {
            works.push_back(reducer.all_reduce_async(bucket_of(model, tensors, rate)));
          });
      time.compute = lap();

      for (winnow::Work& work : works) work.wait();
      works.clear();
      time.wait = lap();
    } else {
      loss += model.loss_and_gradients({corpus.bytes(), targets});
      time.compute = lap();

      group.barrier();
      time.wait = lap();

      reducer.all_reduce(bucket_of(model, model.tensors(), rate));
      time.allreduce = lap();
    }

    optimizer.step(ahead.weights(), model.gradients());
    time.compute += lap();
    time.step = time.compute + time.wait + time.allreduce;
    times.push_back(time);
    seconds += time.step;
    progress.step_done(loss / windows);

    if ((step + 1) % interval == 0 || step + 1 == recipe.steps) {
      ahead.return_to_weights();
      run.curve.push_back({.step = step + 1,
                           .seconds = most_of_any_rank(seconds, group),
                           .training_loss = sum_over_ranks(loss, group) / (windows * group.size()),
                           .held_out_loss = held_out_loss(model, corpus, held_out, group),
                           .wire_bytes = most_of_any_rank(reducer.totals().wire_bytes, group)});
      progress.held_out(run.curve.back().held_out_loss);
      loss = windows = 0;
    }
  }

  const auto steps = static_cast<double>(recipe.steps);
  run.schedule = reducer.totals().schedule;
  run.coding = reducer.totals().coding;
  run.time = slowest_medians(times, group);
  run.wire_bytes_per_step = static_cast<double>(run.curve.back().wire_bytes) / steps;
  run.dense_wire_bytes_per_step =
      static_cast<double>(most_of_any_rank(reducer.totals().dense_wire_bytes, group)) / steps;
  run.parameters_hash = agreed_hash(device.read(ahead.weights()), group);
  return run;
}

}  // namespace train
