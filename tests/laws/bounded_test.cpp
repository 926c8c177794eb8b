// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Law 8: after the first step of a bucket nothing is allocated, for any input.
#include <gtest/gtest.h>

#include <cctype>
#include <limits>
#include <string>

#include "tests/harness/ranks.hpp"
#include "tests/harness/recorded_writes.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/harness/thread_allocations.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

struct Case {
  const char* options;
  Kind kind;
};

class Bounded : public testing::TestWithParam<Case> {
  const RecordedErrors tables_;  // ignored here
};

TEST_P(Bounded, NoAllocationAfterTheFirstStep) {
  const std::vector<Parameter> parameters = {{1, 30000}, {2, 300, 1}, {3, 2000}};
  const Options options = Options::parse(GetParam().options);
  // The copies of a Reducer, and the model of a device, may allocate.
  const bool counts_threads = bucket_place().place != Place::cuda;
  run_worlds(options.schedule, [&](const std::shared_ptr<Transport>& transport) {
    Reducer reducer(transport, options);
    TestBucket bucket(parameters);
    // Two steps, so that both sides have used the transport's queues.
    for (int step = 0; step < 6; ++step) {
      bucket.fill(GetParam().kind, transport->rank(), step);
      if (step == 4 && transport->rank() == 0) {  // a poisoned call, between others
        bucket.values()[0][5] = std::numeric_limits<float>::quiet_NaN();
      }
      const std::uint64_t before = thread_allocations();
      reducer.all_reduce(bucket.segments());
      const std::uint64_t news = thread_allocations() - before;
      if (step == 0) {
        EXPECT_GT(reducer.last().allocations + news, 0U);
      }
      if (step < 2) continue;
      if (counts_threads) {
        EXPECT_EQ(news, 0U) << "ranks " << reducer.topology().to_string() << " step " << step;
      }
      EXPECT_EQ(reducer.last().allocations, 0U);
    }
  });
}

/// The options and the kind of gradient, in letters, digits and underscores.
std::string name_of(const testing::TestParamInfo<Case>& info) {
  constexpr const char* kKinds[] = {"normal",   "heavy_tailed", "all_equal",
                                    "all_zero", "mostly_zero",  "denormal"};
  std::string name = info.param.options;
  name.append("=").append(kKinds[static_cast<int>(info.param.kind)]);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    LawsGather, Bounded,
    testing::Values(Case{"schedule=gather compressor=topk:0.01", Kind::normal},
                    Case{"schedule=gather compressor=topk:0.01", Kind::all_equal},
                    Case{"schedule=gather compressor=topk:0.01", Kind::all_zero},
                    Case{"schedule=gather compressor=topk:0.01", Kind::mostly_zero},
                    Case{"schedule=gather compressor=topk:1", Kind::normal},
                    Case{"schedule=gather compressor=topk:0.01 threads=3", Kind::normal},
                    Case{"schedule=gather compressor=topk:0.05,int8:stochastic", Kind::normal},
                    Case{"schedule=gather compressor=int4", Kind::normal},
                    Case{"schedule=gather compressor=topk:0.01 stats=2", Kind::normal}),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    LawsBalanced, Bounded,
    testing::Values(Case{"schedule=balanced compressor=topk:0.01", Kind::normal},
                    Case{"schedule=balanced compressor=topk:0.01", Kind::all_equal},
                    Case{"schedule=balanced compressor=topk:0.01", Kind::heavy_tailed},
                    Case{"schedule=balanced compressor=topk:0.3,sign", Kind::mostly_zero},
                    Case{"schedule=balanced compressor=topk:0.6,bitmap", Kind::heavy_tailed},
                    Case{"schedule=balanced compressor=int8 threads=3", Kind::normal},
                    Case{"schedule=balanced compressor=topk:0.05,int8 stats=2", Kind::normal}),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    LawsDoubling, Bounded,
    testing::Values(Case{"schedule=doubling compressor=topk:0.01", Kind::normal},
                    Case{"schedule=doubling compressor=topk:0.3", Kind::all_equal},
                    Case{"schedule=doubling compressor=topk:0.4", Kind::mostly_zero},
                    Case{"schedule=doubling compressor=topk:0.05,int8 threads=3", Kind::normal},
                    Case{"schedule=doubling compressor=sign", Kind::heavy_tailed},
                    Case{"schedule=two_level:doubling compressor=topk:0.3", Kind::heavy_tailed}),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    LawsThreshold, Bounded,
    testing::Values(Case{"schedule=gather compressor=threshold", Kind::mostly_zero},
                    Case{"schedule=doubling compressor=threshold:1 threads=3", Kind::normal},
                    Case{"schedule=balanced compressor=threshold:2,int8", Kind::heavy_tailed},
                    Case{"schedule=balanced compressor=threshold", Kind::all_equal},
                    Case{"schedule=two_level:balanced compressor=threshold", Kind::mostly_zero}),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    LawsRandomK, Bounded,
    testing::Values(Case{"schedule=gather compressor=randomk:0.01", Kind::normal},
                    Case{"schedule=balanced compressor=randomk:0.1,int8", Kind::heavy_tailed},
                    Case{"schedule=doubling compressor=randomk:0.1 threads=3", Kind::normal},
                    Case{"schedule=shared compressor=randomk:0.1,sign", Kind::mostly_zero},
                    Case{"schedule=two_level:balanced compressor=randomk:0.01", Kind::normal}),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    LawsShared, Bounded,
    testing::Values(Case{"schedule=shared compressor=topk:0.01", Kind::normal},
                    Case{"schedule=shared compressor=topk:0.01 threads=3", Kind::all_equal},
                    Case{"schedule=shared compressor=topk:0.3,sign", Kind::mostly_zero},
                    Case{"schedule=shared compressor=topk:0.05,int8 max_part=7000", Kind::normal},
                    Case{"schedule=shared compressor=int4", Kind::heavy_tailed},
                    Case{"schedule=two_level:shared compressor=topk:0.01", Kind::heavy_tailed},
                    Case{"schedule=two_level:shared compressor=topk:0.05,int8", Kind::all_equal},
                    Case{"schedule=two_level:shared compressor=int4", Kind::normal}),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    LawsTwoLevel, Bounded,
    testing::Values(Case{"schedule=two_level:gather compressor=topk:0.01", Kind::normal},
                    Case{"schedule=two_level:gather compressor=int4", Kind::heavy_tailed},
                    Case{"schedule=two_level:balanced compressor=topk:0.05,int8", Kind::all_equal},
                    Case{"schedule=two_level:balanced compressor=int8 threads=3", Kind::normal},
                    Case{"schedule=two_level links=pass=10GB/s max_part=7000", Kind::mostly_zero}),
    name_of);
INSTANTIATE_TEST_SUITE_P(Laws, Bounded,
                         testing::Values(Case{"compressor=none", Kind::normal},
                                         Case{"compressor=none deadline=60", Kind::normal}),
                         name_of);

}  // namespace
}  // namespace winnow::tests
