// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The trainer on a GPU: each operation beside the host's, and whole trainings with buckets in
// device memory.
#include "train/device/device.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "train/launch.hpp"
#include "train/random.hpp"
#include "train/trainer.hpp"

namespace train {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

/// Numbers for which all sums and products here are exact: integers from -8 to 8.
Floats integers(std::size_t count, std::uint64_t seed) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(random_bits({seed, i}) % 17) - 8;
  }
  return values;
}

Floats fractions(std::size_t count, std::uint64_t seed) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(10 * random_unit({seed, i}) - 5);
  }
  return values;
}

Bytes bytes_below(std::size_t limit, std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::uint8_t>(random_bits({9, i}) % limit);
  }
  return bytes;
}

template <class T>
Array<T> array_on(const std::shared_ptr<Device<float>>& device, const std::vector<T>& values) {
  Array<T> array(device);
  array.assign(values);
  return array;
}

/// What operate(device, array) leaves in an array that begins as `start`, on either device.
template <class Operate>
std::pair<Floats, Floats> on_both(const Floats& start, const Operate& operate) {
  const auto run = [&](const std::shared_ptr<Device<float>>& device) {
    const Array<float> array = array_on(device, start);
    operate(device, array);
    return device->read(array.span());
  };
  return {run(cpu_device<float>()), run(cuda_device(0))};
}

constexpr std::size_t kRows = 37, kColumns = 19, kInner = 23;

TEST(DeviceOperations, ProductsOfEitherFactorTransposed) {
  for (const Take left : {Take::as_is, Take::transposed}) {
    for (const Take right : {Take::as_is, Take::transposed}) {
      const auto [host, device] =
          on_both(Floats(kRows * kColumns, 1), [&](const auto& on, const Array<float>& product) {
            const auto a = array_on(on, integers(kRows * kInner, 1));
            const auto b = array_on(on, integers(kInner * kColumns, 2));
            const bool a_is = left == Take::as_is, b_is = right == Take::as_is;
            on->multiply({a.data(), a_is ? kRows : kInner, a_is ? kInner : kRows}, left,
                         {b.data(), b_is ? kInner : kColumns, b_is ? kColumns : kInner}, right,
                         {product.data(), kRows, kColumns});
            on->synchronize();
          });
      EXPECT_EQ(host, device);
    }
  }
}

TEST(DeviceOperations, ColumnsOfSymbols) {
  const Bytes symbols = bytes_below(11, kColumns);  // some more than once, some not at all
  const auto taken = on_both(Floats(kRows * kColumns), [&](const auto& on, const auto& to) {
    const auto table = array_on(on, fractions(kRows * 11, 3));
    const auto which = array_on(on, symbols);
    on->take_columns({table.data(), kRows, 11}, which.span(), {to.data(), kRows, kColumns});
    on->synchronize();
  });
  EXPECT_EQ(taken.first, taken.second);
  const auto summed = on_both(Floats(kRows * 11, 5), [&](const auto& on, const auto& table) {
    const auto from = array_on(on, fractions(kRows * kColumns, 4));
    const auto which = array_on(on, symbols);
    on->sum_columns({from.data(), kRows, kColumns}, which.span(), {table.data(), kRows, 11});
    on->synchronize();
  });
  EXPECT_EQ(summed.first, summed.second);
}

TEST(DeviceOperations, RowsBiasAndRelu) {
  const auto sums = on_both(Floats(kRows), [&](const auto& on, const auto& to) {
    const auto from = array_on(on, integers(kRows * kColumns, 5));
    on->sum_rows({from.data(), kRows, kColumns}, to.data());
    on->synchronize();
  });
  EXPECT_EQ(sums.first, sums.second);
  const auto layer = on_both(fractions(kRows * kColumns, 6), [&](const auto& on, const auto& x) {
    const auto bias = array_on(on, fractions(kRows, 7));
    on->add_bias({x.data(), kRows, kColumns}, bias.data());
    on->relu({x.data(), kRows, kColumns});
    on->synchronize();
  });
  EXPECT_EQ(layer.first, layer.second);
  const auto back = on_both(fractions(kRows * kColumns, 8), [&](const auto& on, const auto& d) {
    const auto x = array_on(on, layer.first);
    on->relu_backward({x.data(), kRows, kColumns}, {d.data(), kRows, kColumns});
    on->synchronize();
  });
  EXPECT_EQ(back.first, back.second);
}

/// Column sums have another order, and exponentials another last bit.
TEST(DeviceOperations, Softmax) {
  const Bytes targets = bytes_below(kRows, kColumns);
  std::vector<std::vector<double>> losses;
  const auto both =
      on_both(fractions(kRows * kColumns, 9), [&](const auto& on, const auto& scores) {
        const auto which = array_on(on, targets);
        const auto each = array_on(on, std::vector<double>(kColumns));
        on->softmax({scores.data(), kRows, kColumns}, which.span(), each.data());
        losses.push_back(on->read(each.span()));
      });
  for (std::size_t i = 0; i < both.first.size(); ++i) {
    EXPECT_NEAR(both.first[i], both.second[i], 1e-6 * both.first[i]);
  }
  for (std::size_t i = 0; i < kColumns; ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 1e-6);

  const auto back = on_both(Floats(kRows * kColumns), [&](const auto& on, const auto& gradient) {
    const auto probabilities = array_on(on, both.first);
    const auto which = array_on(on, targets);
    on->softmax_backward({probabilities.data(), kRows, kColumns}, which.span(),
                         {gradient.data(), kRows, kColumns});
    on->synchronize();
  });
  EXPECT_EQ(back.first, back.second);
}

/// A loss that is NaN shows; no maximum hides it.
TEST(DeviceOperations, NanPassesReluAndSoftmax) {
  const auto on = cuda_device(0);
  const auto x = array_on(on, Floats{1, std::numeric_limits<float>::quiet_NaN(), -1});
  const auto target = array_on(on, Bytes{0});
  const auto loss = array_on(on, std::vector<double>(1));
  on->relu({x.data(), 3, 1});
  EXPECT_TRUE(std::isnan(on->read(x.span())[1]));
  on->softmax({x.data(), 3, 1}, target.span(), loss.data());
  EXPECT_TRUE(std::isnan(on->read(loss.span())[0]));
}

TEST(DeviceOperations, Optimizer) {
  const auto [host, device] =
      on_both(fractions(1001, 10), [&](const auto& on, const auto& parameters) {
        const auto velocity = array_on(on, fractions(1001, 11));
        const auto updates = array_on(on, fractions(1001, 12));
        on->momentum_step(0.9f, updates.span(), velocity.data(), parameters.data());
        on->momentum_step(0.9f, updates.span(), velocity.data(), parameters.data());
        on->synchronize();
      });
  EXPECT_EQ(host, device);
}

const Recipe kRecipe{.shape = {.context = 3, .embedding = 8, .hidden = 16},
                     .batch = 6,
                     .steps = 8,
                     .seed = 3,
                     .held_out_windows = 40};

/// Rank 0's run, over threads.
Run run_on(const std::string& compressor, bool on_gpu, bool overlap = false) {
  std::string text;
  while (text.size() < 4000) text += "the quick brown fox jumps over the lazy dog. ";
  const Corpus corpus(text, kRecipe.shape.context);
  Run of_first;
  const int status = launch_threads(2, 1, [&](Links links) {
    Group group(std::move(links.group));
    Progress silent(Show::never, group.rank(), kRecipe.steps);
    Recipe recipe = kRecipe;
    if (on_gpu) recipe.device = cuda_device(links.place);
    recipe.overlap = overlap;
    const winnow::Options options{
        .compressor = compressor, .schedule = "least_bytes", .min_bytes = 0};
    winnow::AllReducer reducer(links.reducers[0], options, recipe.device->exec());
    const Run run = train(recipe, corpus, reducer, group, silent);
    if (group.rank() == 0) of_first = run;
  });
  EXPECT_EQ(status, 0);
  return of_first;
}

/// Products are summed in other orders, so losses differ in the last bits: over eight steps by far
/// less than one part in 10^4. train() itself compares the ranks' parameters bit for bit.
TEST(DeviceTraining, LossesAreTheHosts) {
  for (const char* compressor : {"none", "topk:0.05", "topk:0.05,int8"}) {
    const auto host = run_on(compressor, false), device = run_on(compressor, true);
    ASSERT_EQ(host.curve.size(), device.curve.size());
    for (std::size_t i = 0; i < host.curve.size(); ++i) {
      const double loss = host.curve[i].training_loss;
      EXPECT_NEAR(device.curve[i].training_loss, loss, 1e-4 * loss) << compressor << ' ' << i;
      const double held_out = host.curve[i].held_out_loss;
      EXPECT_NEAR(device.curve[i].held_out_loss, held_out, 1e-4 * held_out) << compressor;
    }
    EXPECT_EQ(host.schedule, device.schedule);
    EXPECT_NEAR(device.wire_bytes_per_step, host.wire_bytes_per_step,
                0.01 * host.wire_bytes_per_step);
  }
}

TEST(DeviceTraining, GivesTheSameBitsAgain) {
  const auto once = run_on("topk:0.05", true), again = run_on("topk:0.05", true);
  EXPECT_EQ(once.parameters_hash, again.parameters_hash);
  const auto overlapped = run_on("topk:0.05", true, true);
  EXPECT_EQ(once.parameters_hash, overlapped.parameters_hash);
}

}  // namespace
}  // namespace train
