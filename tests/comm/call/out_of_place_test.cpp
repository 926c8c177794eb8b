// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Segments with an input: results, residuals and Stats equal those of the call in place, and the
// input is only read.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/half.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/usage_error.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

const std::vector<Parameter> kParameters = {{1, 13001}, {2, 300, 1}, {3, 0}, {4, 1}, {5, 2000}};

struct Case {
  const char* compressor;
  const char* schedule;
  ElementType type;
  ReduceOp op = ReduceOp::average;
};

class OutOfPlace : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Ways, OutOfPlace,
    testing::Values(Case{"topk:0.02", "gather", ElementType::float32},
                    Case{"topk:0.02", "balanced", ElementType::float32},
                    Case{"topk:0.02", "doubling", ElementType::float32},
                    Case{"topk:0.05,int8:stochastic", "least_bytes", ElementType::float32,
                         ReduceOp::sum},
                    Case{"int4", "gather", ElementType::float32},
                    Case{"none", "balanced", ElementType::float32},
                    Case{"none", "least_bytes", ElementType::float32},
                    Case{"topk:0.02", "dense", ElementType::float32},
                    Case{"topk:0.02", "gather", ElementType::bf16},
                    Case{"topk:0.02,int8", "balanced", ElementType::fp16},
                    Case{"none", "least_bytes", ElementType::bf16},
                    Case{"topk:0.02", "least_bytes", ElementType::float32, ReduceOp::maximum},
                    Case{"topk:0.02", "least_bytes", ElementType::fp16, ReduceOp::product},
                    Case{"topk:0.02", "least_bytes", ElementType::float64},
                    Case{"topk:0.02", "least_bytes", ElementType::int8, ReduceOp::sum},
                    Case{"topk:0.02", "least_bytes", ElementType::uint64, ReduceOp::minimum},
                    Case{"topk:0.02", "two_level", ElementType::float32},
                    Case{"int8", "two_level:balanced", ElementType::bf16}),
    [](const auto& test) { return "case" + std::to_string(test.index); });

/// A tensor of any type in bytes.
struct Tensor {
  ElementType type;
  std::uint64_t count;
  std::vector<std::uint64_t> words = std::vector<std::uint64_t>(count + 1);

  Elements view() { return {words.data(), count, type}; }
  friend bool operator==(const Tensor& a, const Tensor& b) { return a.words == b.words; }
};

Tensor make_tensor(ElementType type, const Parameter& parameter, int rank, int step) {
  Tensor tensor{type, parameter.count};
  const auto floats = make_gradient(Kind::normal, parameter.count, rank, step, parameter.id);
  const Elements view = tensor.view();
  for (std::uint64_t i = 0; i < parameter.count; ++i) {
    const auto whole = static_cast<std::int64_t>(floats[i] * 100);
    switch (type) {
      case ElementType::float32:
        view.floats()[i] = floats[i];
        break;
      case ElementType::float64:
        view.as<double>()[i] = static_cast<double>(floats[i]);
        break;
      case ElementType::int8:
        view.as<std::int8_t>()[i] = static_cast<std::int8_t>(whole);
        break;
      case ElementType::uint64:
        view.as<std::uint64_t>()[i] = static_cast<std::uint64_t>(whole);
        break;
      default:
        kernels::narrow({}, type, std::span(floats).subspan(i, 1), view.halves().subspan(i, 1));
    }
  }
  return tensor;
}

std::vector<Tensor> make_tensors(ElementType type, int rank, int step) {
  std::vector<Tensor> tensors;
  for (const Parameter& p : kParameters) tensors.push_back(make_tensor(type, p, rank, step));
  return tensors;
}

// Every other parameter stays in place, and on odd ranks every other step: each rank chooses for
// itself.
TEST_P(OutOfPlace, EqualsInPlace) {
  const Case c = GetParam();
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
      const int rank = transports[0]->rank();
      const Options options{.compressor = c.compressor,
                            .schedule = c.schedule,
                            .links = kGivenLinks,  // measured ones are not the same twice
                            .op = c.op,
                            .min_bytes = 0,
                            .seed = 5};
      AllReducer in_place(transports[0], options), apart(transports[1], options);
      for (int step = 0; step < 4; ++step) {
        auto expected = make_tensors(c.type, rank, step);
        auto input = expected, output = make_tensors(c.type, rank, step + 100);
        const auto untouched = input;
        std::vector<Segment> all, separate;
        for (std::size_t p = 0; p < kParameters.size(); ++p) {
          const bool here = p % 2 == 1 || (rank % 2 == 1 && step % 2 == 1);
          const auto [id, count, dimensions] = kParameters[p];
          all.push_back({.elements = expected[p].view(), .id = id, .dimensions = dimensions});
          if (here && p % 4 == 1) output[p] = input[p];
          separate.push_back(
              {.elements = here && p % 4 != 1 ? input[p].view() : output[p].view(),
               .id = id,
               .dimensions = dimensions,
               .input = here && p % 4 == 1 ? ConstElements() : ConstElements(input[p].view())});
        }
        in_place.all_reduce(all);
        if (step == 2) {
          apart.all_reduce_async(separate).wait();
        } else {
          apart.all_reduce(separate);
        }
        for (std::size_t p = 0; p < kParameters.size(); ++p) {
          const bool written =
              separate[p].elements.bytes().data() == input[p].view().bytes().data();
          EXPECT_TRUE(std::ranges::equal(separate[p].elements.bytes(), all[p].elements.bytes()))
              << "parameter " << p << " step " << step;
          EXPECT_TRUE(written || input[p] == untouched[p]) << "parameter " << p;
          const std::uint64_t id = kParameters[p].id;
          EXPECT_TRUE(same_bits(apart.residual(id), in_place.residual(id)));
        }
        const Stats a = apart.last(), b = in_place.last();
        EXPECT_EQ(a.schedule, b.schedule);
        EXPECT_EQ(a.reason, b.reason);
        EXPECT_EQ(a.kept, b.kept);
        EXPECT_EQ(a.wire_bytes, b.wire_bytes);
      }
    });
  }
}

// The caller passes a const tensor and another one for the result, as to MPI_Allreduce.
TEST(OutOfPlaceCall, TakesWhatIsConst) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.links = kGivenLinks, .op = ReduceOp::sum});
      const std::vector<float> in(1000, 2.0F);
      const std::vector<std::int64_t> ranks_in(3, transport->rank());
      std::vector<float> out(1000), later(1000);
      std::vector<std::int64_t> ranks_out(3);
      reducer.all_reduce(in, out, 1);
      Work work = reducer.all_reduce_async(in, later, 1);
      reducer.all_reduce(ranks_in, ranks_out, 2, ReduceOp::maximum);
      work.wait();
      const auto size = static_cast<float>(transport->size());
      EXPECT_EQ(out, std::vector<float>(1000, 2 * size));
      EXPECT_EQ(later, out);
      EXPECT_EQ(in, std::vector<float>(1000, 2.0F));
      EXPECT_EQ(ranks_out, std::vector<std::int64_t>(3, transport->size() - 1));
    });
  }
}

TEST(OutOfPlaceUsage, AWrongInputIsAnErrorOnEveryRank) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport,
                         {.compressor = "topk:0.1", .schedule = "least_bytes", .min_bytes = 0});
      std::vector<float> values(1000, 1.0F), out(900, 5.0F);
      const std::vector<float> few(899, 1.0F);
      const std::vector<std::int32_t> whole(900, 1);
      const std::span<float> overlaps(values.data(), 900), onto(values.data() + 100, 900);
      for (int call = 0; call < 2; ++call) {
        const auto count = usage_error([&] { reducer.all_reduce(few, out, 1); });
        EXPECT_NE(count.find("the input of parameter 1 has another count"), std::string::npos);
        const auto type = usage_error([&] { reducer.all_reduce(whole, out, 1); });
        EXPECT_NE(type.find("of another type"), std::string::npos) << type;
        const auto up = usage_error([&] { reducer.all_reduce(overlaps, onto, 1); });
        EXPECT_NE(up.find("overlaps"), std::string::npos) << up;
        const auto down = usage_error([&] { reducer.all_reduce(onto, overlaps, 1); });
        EXPECT_NE(down.find("overlaps"), std::string::npos) << down;
        EXPECT_EQ(out, std::vector<float>(900, call == 0 ? 5.0F : 0.0F));
        EXPECT_EQ(values, std::vector<float>(1000, 1.0F));
        // From the second time on the bucket is known.
        std::ranges::fill(out, 0.0F);
        reducer.all_reduce(out, 1);
      }
      // One rank's mistake is an error on every rank.
      std::vector<float> fresh(900, 2.0F);
      const bool odd = transport->rank() == 0;
      const auto error = usage_error(
          [&] { odd ? reducer.all_reduce(few, fresh, 7) : reducer.all_reduce(fresh, 7); });
      EXPECT_NE(error.find(odd ? "another count" : "rank 0"), std::string::npos) << error;
      EXPECT_EQ(fresh, std::vector<float>(900, 2.0F));
      // Adjacent memory does not overlap.
      std::vector<float> halves(2000, 1.0F);
      reducer.all_reduce(std::span(halves).first(1000), std::span(halves).last(1000), 9);
      EXPECT_EQ(halves[999], 1.0F);
    });
  }
}

}  // namespace
}  // namespace winnow::tests
