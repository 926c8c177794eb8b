// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// An AllReducer whose messages go over NCCL, with buckets in device memory and in host memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>
#include <winnow/nccl.hpp>
#include <winnow/winnow.hpp>

#include "compress/compressor.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/half.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/reduce.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/device_buckets.hpp"
#include "tests/harness/graph.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

const std::vector<Parameter> kParameters = {{1, 5000}, {2, 300, 1}, {3, 2000}};
constexpr int kSteps = 3;

class AllReducerOverNccl : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_nccl_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

/// A folder in which the ranks of a test meet.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks) { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~Meeting() { EXPECT_EQ(::rmdir(folder_.c_str()), 0); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// A transport of all ranks; another one for each job.
  std::shared_ptr<Transport> join(int rank, std::uint64_t job = 7) const {
    return nccl_transport(
        {.path = folder_ + "/id" + std::to_string(job), .job = job, .rank = rank, .size = ranks_},
        Deadline::after(std::chrono::seconds(60)));
  }

  /// One rank may give its word, for which another one waits.
  void give_word() const { const std::ofstream word(folder_ + "/word"); }
  void await_word() const {
    while (!std::filesystem::remove(folder_ + "/word")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  std::string folder_ = testing::TempDir() + "winnow_nccl_XXXXXX";
  int ranks_;
};

struct Case {
  const char* compressor;
  double density;
  std::uint64_t max_part = Options::kMaxPart;
  std::optional<float> threshold = {};
};

/// Compares some steps of a bucket with the reference, bit for bit.
void expect_equals_reference(const std::shared_ptr<Transport>& transport, const Case& c,
                             const Exec& place) {
  AllReducer reducer(transport,
                     {.compressor = c.compressor,
                      .schedule = "gather",
                      .min_bytes = 0,
                      .exempt_1d = false,
                      .max_part = c.max_part},
                     place);
  Reference reference(transport->size(), kParameters,
                      {.density = c.density,
                       .threshold = c.threshold,
                       .value = compress::make_compressor(c.compressor)->codings().value});
  std::vector<kernels::PlaceArray<float>> memory;
  std::vector<Segment> segments;
  for (const Parameter& p : kParameters) {
    memory.emplace_back(place, p.count);
    segments.push_back({.elements = memory.back().span(), .id = p.id, .dimensions = p.dimensions});
  }
  for (int step = 0; step < kSteps; ++step) {
    const auto all = all_gradients(kParameters, Kind::heavy_tailed, transport->size(), step);
    const auto& gradients = all[static_cast<std::size_t>(transport->rank())];
    for (std::size_t p = 0; p < kParameters.size(); ++p) {
      kernels::copy(place, memory[p].span(), std::span<const float>(gradients[p]));
    }
    kernels::wait(place);
    reducer.all_reduce(segments);
    const auto expected = reference.step(all);
    for (std::size_t p = 0; p < kParameters.size(); ++p) {
      std::vector<float> result(kParameters[p].count), residual(kParameters[p].count);
      kernels::read(place, std::as_writable_bytes(std::span(result)),
                    std::as_bytes(memory[p].span()));
      kernels::read(place, std::as_writable_bytes(std::span(residual)),
                    std::as_bytes(reducer.residual(kParameters[p].id)));
      EXPECT_TRUE(same_bits(result, expected[p])) << "step " << step << " parameter " << p;
      EXPECT_TRUE(same_bits(residual, reference.residual(transport->rank(), p)));
    }
  }
  EXPECT_EQ(reducer.last().schedule, "gather");
}

TEST_F(AllReducerOverNccl, IsAvailable) {
  EXPECT_TRUE(nccl_available());
}

TEST_F(AllReducerOverNccl, EqualsReference) {
  for (const int ranks : {2, 3}) {
    const Meeting meeting(ranks);
    run_nccl_ranks(ranks, [&](int rank) {
      const Stream stream;
      const std::shared_ptr<Transport> transport = meeting.join(rank);
      expect_equals_reference(transport, {"topk:0.01", 0.01}, stream.exec());
      expect_equals_reference(transport, {"topk:1", 1, 2048}, stream.exec());  // in parts
      expect_equals_reference(transport, {"int8", 1}, stream.exec());
      expect_equals_reference(transport, {"topk:0.05,int4", 0.05}, stream.exec());
      // Sizes are exchanged first.
      expect_equals_reference(transport, {"threshold:2", 1, 2048, 2.0F}, stream.exec());
      expect_equals_reference(transport, {"topk:0.05,int4", 0.05}, {});  // by host messages
    });
  }
}

struct Plan {
  const char *compressor, *schedule = "gather";
};
std::ostream& operator<<(std::ostream& to, const Plan& plan) {
  return to << plan.compressor << " by " << plan.schedule;
}

/// A graph holds calls, and every rank replays it: the bits are those of calls without a graph. No
/// call waits for the device, which would end the capture. A poisoned replay poisons all ranks.
/// Later calls go on with the random numbers that follow, whether or not the host has waited for
/// the replays.
void expect_replays_equal_calls(const Plan& plan) {
  constexpr int kRanks = 3;
  constexpr std::size_t kCount = 5000;
  const Meeting meeting(kRanks);
  run_nccl_ranks(kRanks, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    const std::shared_ptr<Transport> transport = meeting.join(rank);
    const Options options{.compressor = plan.compressor,
                          .schedule = plan.schedule,
                          .min_bytes = 0,
                          .exempt_1d = false,
                          .max_part = 2048};
    AllReducer plain(transport, options, place);
    AllReducer captured(meeting.join(rank, 8), options, place);
    kernels::PlaceArray<float> here(place, kCount), there(place, kCount);
    const auto step = [&](int number, const auto& call) {
      auto gradient = make_gradient(Kind::heavy_tailed, kCount, rank, number, 7);
      if (number == 3 && rank == 1) gradient[4000] = std::numeric_limits<float>::infinity();
      kernels::copy(place, here.span(), std::span<const float>(gradient));
      kernels::copy(place, there.span(), std::span<const float>(gradient));
      kernels::wait(place);
      plain.all_reduce(here.span(), 7);
      call();
      EXPECT_TRUE(same_bits(on_host(place, there.span()), on_host(place, here.span())))
          << "step " << number;
      EXPECT_TRUE(
          same_bits(on_host(place, captured.residual(7)), on_host(place, plain.residual(7))));
    };
    const auto call = [&] { captured.all_reduce(there.span(), 7); };
    step(0, call);
    step(1, call);
    const Graph graph(stream, call);
    for (int number = 2; number < 6; ++number) step(number, [&] { graph.launch(stream); });
    if (rank == 0) captured.synchronize();  // the others have not waited when they meet
    const std::span<float> shard = there.span().first(kCount / kRanks),
                           expected = here.span().first(kCount / kRanks);
    plain.all_reduce(expected, 8);
    captured.all_reduce(shard, 8);
    EXPECT_TRUE(same_bits(on_host(place, shard), on_host(place, expected))) << "a new bucket";
    step(6, call);
    step(7, [&] { graph.launch(stream); });
    const std::span<float> input = there.span().first(kRanks * shard.size());
    kernels::PlaceArray<float> out(place, shard.size()), expected_out(place, shard.size());
    plain.reduce_scatter(here.span().first(input.size()), expected_out.span(), 9);
    captured.reduce_scatter(input, out.span(), 9);  // within it the host reads headers
    EXPECT_TRUE(same_bits(on_host(place, out.span()), on_host(place, expected_out.span())));
    captured.synchronize();
    EXPECT_EQ(captured.totals().poisoned, 1U);
  });
}

// Each rank's communicator takes seconds where ranks share a GPU: a case for each compressor can
// run beside the others.
class GraphsOverNccl : public AllReducerOverNccl, public testing::WithParamInterface<Plan> {};
INSTANTIATE_TEST_SUITE_P(Plans, GraphsOverNccl,
                         testing::Values(Plan{"topk:0.05,int8"}, Plan{"topk:0.05,int4:stochastic"},
                                         Plan{"randomk:0.05,int8:stochastic"},
                                         Plan{"int8:stochastic"},
                                         Plan{"randomk:0.05,int8:stochastic", "balanced"},
                                         Plan{"int8:stochastic", "balanced"}));

TEST_P(GraphsOverNccl, ReplayCalls) {
  expect_replays_equal_calls(GetParam());
}

struct KernelsOfCall {
  const char* compressor;
  std::size_t kernels, clears;
};
std::ostream& operator<<(std::ostream& to, const KernelsOfCall& of) {
  return to << of.compressor;
}
class KernelsOverNccl : public AllReducerOverNccl,
                        public testing::WithParamInterface<KernelsOfCall> {};
INSTANTIATE_TEST_SUITE_P(Compressors, KernelsOverNccl,
                         testing::Values(KernelsOfCall{"topk:0.05", 11, 4},
                                         KernelsOfCall{"topk:0.05,int8", 14, 4},
                                         KernelsOfCall{"int8", 10, 3}));

/// Messages of all other ranks share kernels, so a call's kernels and clears do not grow with their
/// number. A group of NCCL is one of them.
TEST_P(KernelsOverNccl, RanksShareTheKernelsOfACall) {
  const auto [compressor, kernels, clears] = GetParam();
  for (const int ranks : {2, 4, 8}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    const Meeting meeting(ranks);
    run_nccl_ranks(ranks, [&](int rank) {
      const Stream stream;
      const Exec place = stream.exec();
      AllReducer reducer(
          meeting.join(rank),
          {.compressor = compressor, .schedule = "gather", .min_bytes = 0, .exempt_1d = false},
          place);
      kernels::PlaceArray<float> bucket(place, 3000);
      kernels::zero(place, std::as_writable_bytes(bucket.span()));
      const auto call = [&] { reducer.all_reduce(bucket.span(), 7); };
      for (int first = 0; first < 2; ++first) call();
      reducer.synchronize();
      const Graph graph(stream, call);
      EXPECT_EQ(graph.count(cudaGraphNodeTypeKernel), kernels);
      EXPECT_EQ(graph.count(cudaGraphNodeTypeMemset), clears);
    });
  }
}

class StreamOrderOverNccl : public AllReducerOverNccl, public testing::WithParamInterface<Plan> {};
INSTANTIATE_TEST_SUITE_P(Plans, StreamOrderOverNccl,
                         testing::Values(Plan{"topk:0.05"}, Plan{"int8", "balanced"},
                                         Plan{"randomk:0.05", "balanced"},
                                         Plan{"topk:0.05", "shared"},
                                         Plan{"topk:0.05,int8", "shared"}));

/// The host enqueues call after call while the peer has not begun one.
TEST_P(StreamOrderOverNccl, CallsReturnWhenTheyAreEnqueued) {
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(meeting.join(rank),
                       {.compressor = GetParam().compressor,
                        .schedule = GetParam().schedule,
                        .min_bytes = 0,
                        .exempt_1d = false},
                       place);
    kernels::PlaceArray<float> bucket(place, 3000);
    const auto gradient = make_gradient(Kind::heavy_tailed, 3000, rank, 0, 7);
    const auto call = [&] {
      kernels::copy(place, bucket.span(), std::span<const float>(gradient));
      reducer.all_reduce(bucket.span(), 7);
    };
    call();
    reducer.synchronize();
    if (rank == 1) meeting.await_word();
    for (int more = 0; more < 3; ++more) call();
    if (rank == 0) meeting.give_word();
    reducer.synchronize();
    EXPECT_EQ(reducer.totals().calls, 4U);
    EXPECT_EQ(reducer.totals().poisoned, 0U);
  });
}

/// A peer makes no more calls. The device stops waiting for it at the deadline, and the residual
/// holds again what the waiting call took.
TEST_P(StreamOrderOverNccl, NobodyWaitsForAPeerThatIsGone) {
  constexpr std::size_t kCount = 5000;
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    const std::shared_ptr<Transport> transport = meeting.join(rank);
    AllReducer reducer(transport,
                       {.compressor = GetParam().compressor,
                        .schedule = GetParam().schedule,
                        .min_bytes = 0,
                        .deadline = 2,
                        .stats = 1},
                       place);
    kernels::PlaceArray<float> bucket(place, kCount);
    const auto gradient = make_gradient(Kind::heavy_tailed, kCount, rank, 0, 7);
    kernels::copy(place, bucket.span(), std::span<const float>(gradient));
    reducer.all_reduce(bucket.span(), 7);
    reducer.synchronize();
    if (rank == 1) return;
    const std::vector<float> before = on_host(place, reducer.residual(7));
    const double seconds = reducer.totals().wait_seconds;
    EXPECT_GT(seconds, 0);
    kernels::copy(place, bucket.span(), std::span<const float>(gradient));
    bool heard = false;  // at once, as for a socket that the peer has closed
    try {
      reducer.all_reduce(bucket.span(), 7);
    } catch (const CommError&) {
      heard = true;
    }
    kernels::wait(place);  // not for ever
    for (const float element : on_host(place, bucket.span())) {
      EXPECT_TRUE(heard ? element == 0 : std::isnan(element));
    }
    EXPECT_THROW(reducer.all_reduce(bucket.span(), 7), CommError);
    EXPECT_THROW(reducer.synchronize(), CommError);
    EXPECT_EQ(reducer.totals().wait_seconds, seconds);  // nobody learnt how the second call ended
    const std::vector<float> after = on_host(place, reducer.residual(7));
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_FLOAT_EQ(after[i], gradient[i] + before[i]);
  });
}

/// A dense sum has no header that could tell the device that it never came.
TEST_F(AllReducerOverNccl, ADenseCallWithoutAPeerFails) {
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(meeting.join(rank),
                       {.compressor = "none", .op = ReduceOp::sum, .deadline = 1}, place);
    kernels::PlaceArray<float> bucket(place, 1000);
    reducer.all_reduce(bucket.span(), 7);
    reducer.synchronize();
    if (rank == 1) return;
    Work work = reducer.all_reduce_async(bucket.span(), 7);
    const auto wait = [&] {
      work.wait(stream.get());
      kernels::wait(place);  // until the call has been given up
      work.wait();
    };
    EXPECT_THROW(wait(), CommError);
    EXPECT_THROW(reducer.synchronize(), CommError);
  });
}

/// Ranks agree on the size of a bucket's messages before they send the first one.
TEST_F(AllReducerOverNccl, RanksWhoseBucketsDifferLearnSo) {
  const Meeting meeting(3);
  run_nccl_ranks(3, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(
        meeting.join(rank),
        {.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0, .deadline = 60}, place);
    kernels::PlaceArray<float> bucket(place, rank == 1 ? 200 : 100);
    try {
      reducer.all_reduce(bucket.span(), 7);
      ADD_FAILURE() << "rank " << rank << " heard nothing";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("in the count of elements"), std::string::npos)
          << error.what();
    }
  });
}

/// Later calls do not ask again. Then messages of unequal sizes end at the deadline, or before.
TEST_F(AllReducerOverNccl, RanksThatTakeKnownBucketsCrosswiseEnd) {
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(
        meeting.join(rank),
        {.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0, .deadline = 1}, place);
    kernels::PlaceArray<float> few(place, 1000), many(place, 9000);
    reducer.all_reduce(few.span(), 1);
    reducer.all_reduce(many.span(), 2);
    reducer.synchronize();
    const auto cross = [&] {
      reducer.all_reduce(rank == 0 ? few.span() : many.span(), rank == 0 ? 1 : 2);
      reducer.synchronize();
    };
    EXPECT_THROW(cross(), CommError);
  });
}

/// A host that enqueues until streams are full, and waits within a call for space, does not hang.
TEST_F(AllReducerOverNccl, NobodyWaitsForRoomBehindAPeerThatIsGone) {
  constexpr std::size_t kCount = 100;
  constexpr int kMore = 400;  // more calls than fit a stream
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(
        meeting.join(rank),
        {.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0, .deadline = 1}, place);
    kernels::PlaceArray<float> bucket(place, kCount);
    reducer.all_reduce(bucket.span(), 7);
    reducer.synchronize();
    if (rank == 1) return;
    const auto go_on = [&] {
      for (int call = 0; call < kMore; ++call) reducer.all_reduce(bucket.span(), 7);
    };
    EXPECT_THROW(go_on(), CommError);
    EXPECT_THROW(reducer.synchronize(), CommError);
  });
}

/// NCCL keeps a communicator until the graphs with its work are gone. Nobody waits for that:
/// neither a rank that gives up a dead peer, nor one that destroys its transport first.
TEST_F(AllReducerOverNccl, NobodyWaitsForAGraph) {
  constexpr std::size_t kCount = 1000;
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    const Options options{
        .compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0, .deadline = 1};
    kernels::PlaceArray<float> bucket(place, kCount);
    for (const bool peer_goes : {false, true}) {
      std::optional<Graph> graph;
      std::optional<AllReducer> reducer(std::in_place, meeting.join(rank, peer_goes ? 1 : 0),
                                        options, place);
      const auto call = [&] { reducer->all_reduce(bucket.span(), 7); };
      call();
      call();
      graph.emplace(stream, call);
      graph->launch(stream);
      reducer->synchronize();
      if (peer_goes && rank == 0) {
        graph->launch(stream);
        EXPECT_THROW(reducer->synchronize(), CommError);
      }
      reducer.reset();  // and its transport, before the graph
    }
  });
}

/// The host of a schedule that waits for the device also waits for an earlier call, for which
/// nobody waited yet; it does so no longer than the deadline.
TEST_F(AllReducerOverNccl, NobodyWaitsForEverForAnEarlierCall) {
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    AllReducer reducer(meeting.join(rank),
                       {.compressor = "topk:0.05",
                        .schedule = "balanced",
                        .min_bytes = 4096,
                        .exempt_1d = false,
                        .deadline = 1},
                       place);
    kernels::PlaceArray<float> dense(place, 100), compressed(place, 5000);
    for (int call = 0; call < 2; ++call) {
      reducer.all_reduce(dense.span(), 1);
      reducer.all_reduce(compressed.span(), 2);
    }
    reducer.synchronize();
    if (rank == 1) return;
    const auto go_on = [&] {
      reducer.all_reduce(dense.span(), 1);
      reducer.all_reduce(compressed.span(), 2);
    };
    EXPECT_THROW(go_on(), CommError);
  });
}

/// synchronize waits for a replay, too, and learns its outcome.
TEST_F(AllReducerOverNccl, AReplayIsWaitedFor) {
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    const auto transport = meeting.join(rank);
    {
      AllReducer reducer(transport,
                         {.compressor = "topk:0.05", .schedule = "gather", .min_bytes = 0}, place);
      kernels::PlaceArray<float> bucket(place, 1000);
      const auto call = [&] { reducer.all_reduce(bucket.span(), 7); };
      call();
      call();
      const Graph graph(stream, call);
      if (rank == 0) {
        kernels::fill(place, bucket.span().first(1), std::numeric_limits<float>::infinity());
      }
      graph.launch(stream);
      reducer.synchronize();
      EXPECT_EQ(reducer.totals().poisoned, 1U);
    }
    // Nothing is under way any more.
    const std::vector<int> all = {0, 1};
    EXPECT_EQ(transport->subset(all)->size(), 2);
  });
}

/// Numbers as elements of a floating-point type.
std::vector<std::byte> elements_of(ElementType type, std::span<const float> numbers) {
  std::vector<std::byte> bytes(numbers.size() * bytes_of(type));
  const Elements elements(bytes.data(), numbers.size(), type);
  if (type == ElementType::float32) {
    std::ranges::copy(numbers, elements.floats().begin());
  } else if (type == ElementType::float64) {
    std::ranges::copy(numbers, elements.as<double>().begin());
  } else {
    kernels::narrow({}, type, numbers, elements.halves());
  }
  return bytes;
}

/// Ranks 0 and 1 meet each of these numbers with each other one.
std::vector<float> rare_numbers(int rank) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kKinds[] = {0, -0.0F, kNaN, -kNaN, kInfinity, -kInfinity, 1, -2};
  constexpr std::size_t kCount = std::size(kKinds);
  std::vector<float> numbers(kCount * kCount);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = kKinds[rank == 0 ? i % kCount : rank == 1 ? i / kCount : i % 2];
  }
  return numbers;
}

/// Calls give the bits of kernels::reduce.
void expect_rare_numbers_reduced(const std::shared_ptr<Transport>& transport, const Exec& place,
                                 ReduceOp op) {
  AllReducer reducer(transport, {}, place);
  std::vector<float> numbers = rare_numbers(0);
  for (int rank = 1; rank < transport->size(); ++rank) {
    kernels::reduce({.place = Place::reference}, op, numbers, rare_numbers(rank));
  }
  for (const ElementType type :
       {ElementType::float32, ElementType::float64, ElementType::bf16, ElementType::fp16}) {
    const std::vector<std::byte> mine = elements_of(type, rare_numbers(transport->rank()));
    const std::vector<std::byte> expected = elements_of(type, numbers);
    kernels::PlaceArray<std::byte> memory(place, mine.size());
    kernels::copy(place, memory.span(), mine);
    kernels::wait(place);
    reducer.all_reduce(Elements(memory.span().data(), numbers.size(), type),
                       static_cast<std::uint64_t>(type), op);
    std::vector<std::byte> got(mine.size());
    kernels::read(place, got, memory.span());
    EXPECT_TRUE(got == expected) << "type " << static_cast<int>(type) << ", operation "
                                 << static_cast<int>(op);
  }
}

TEST_F(AllReducerOverNccl, MinimumAndMaximumKnowZerosAndPassNaN) {
  for (const int ranks : {2, 3}) {
    const Meeting meeting(ranks);
    run_nccl_ranks(ranks, [&](int rank) {
      const Stream stream;
      const std::shared_ptr<Transport> transport = meeting.join(rank);
      for (const ReduceOp op : {ReduceOp::minimum, ReduceOp::maximum}) {
        expect_rare_numbers_reduced(transport, stream.exec(), op);
        expect_rare_numbers_reduced(transport, {}, op);  // by host messages
      }
    });
  }
}

/// NCCL's own allreduce serves dense calls, also for tensors that lie apart.
TEST_F(AllReducerOverNccl, DenseIsNcclsOwn) {
  const Meeting meeting(2);
  run_nccl_ranks(2, [&](int rank) {
    const Stream stream;
    const Exec place = stream.exec();
    const std::shared_ptr<Transport> transport = meeting.join(rank);
    AllReducer reducer(transport, {.compressor = "none", .op = ReduceOp::sum}, place);
    kernels::PlaceArray<float> first(place, 1000), second(place, 500);
    kernels::fill(place, first.span(), static_cast<float>(rank + 1));
    kernels::fill(place, second.span(), static_cast<float>(rank + 2));
    const Segment segments[] = {{.elements = first.span(), .id = 1},
                                {.elements = second.span(), .id = 2}};
    reducer.all_reduce(segments);
    EXPECT_EQ(reducer.last().schedule, "dense");
    std::vector<float> here(1000);
    kernels::read(place, std::as_writable_bytes(std::span(here)), std::as_bytes(first.span()));
    EXPECT_EQ(here, std::vector<float>(1000, 3));
    here.resize(500);
    kernels::read(place, std::as_writable_bytes(std::span(here)), std::as_bytes(second.span()));
    EXPECT_EQ(here, std::vector<float>(500, 5));
  });
}

}  // namespace
}  // namespace winnow::tests
