// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What callers give that cannot be right: a UsageError that names it, on every rank where ranks
// meet, which changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <winnow/mixed.hpp>
#include <winnow/nccl.hpp>
#include <winnow/tcp.hpp>
#include <winnow/winnow.hpp>

#include "kernels/exec/lab_places.hpp"
#include "tests/harness/ranks.hpp"

namespace winnow::tests {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kCount = 100;

/// What `call` says that it refuses.
std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a UsageError: " << error.what();
  }
  return "nothing was refused";
}

void expect_refusal(const std::string& names, const std::function<void()>& call) {
  const std::string text = refusal_of(call);
  EXPECT_NE(text.find(names), std::string::npos) << "no '" << names << "' in: " << text;
}

float* at(std::intptr_t address) {
  return reinterpret_cast<float*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// Elements that lie nowhere.
std::vector<Elements> nowhere() {
  static std::array<float, kCount> memory{};
  std::vector<Elements> all;
  for (const std::intptr_t address : {0, 1, -1}) {
    all.emplace_back(at(address), kCount, ElementType::float32);
    all.emplace_back(at(address), 1, ElementType::int64);
  }
  for (const std::uint64_t count :
       {kMost, kMost / 2 + 1, kMost / 4 + 1, kMost / 4, kMost / 8 + 1}) {
    all.emplace_back(memory.data(), count, ElementType::float32);
    all.emplace_back(memory.data(), count, ElementType::float64);
  }
  // More than addresses reach, though their bytes can be counted.
  for (const int bits : {45, 48, 49, 52, 56, 58, 60}) {
    for (const ElementType type :
         {ElementType::float32, ElementType::int32, ElementType::float64}) {
      all.emplace_back(memory.data(), std::uint64_t{1} << bits, type);
    }
  }
  all.emplace_back(memory.data(), std::uint64_t{1} << 47, ElementType::uint8);
  all.emplace_back(memory.data(), kMost / 2 + 1, ElementType::bf16);
  all.emplace_back(memory.data(), kMost, ElementType::uint8);
  return all;
}

constexpr const char* kOptions =
    "compressor=topk:0.1 schedule=gather op=sum min_bytes=0 deadline=60";

/// Runs `body` with a reducer, and checks that calls then still give what they should.
void with_reducer(const std::function<void(AllReducer&)>& body) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, Options::parse(kOptions));
      std::vector<float> known(kCount, 1);
      reducer.all_reduce(known, 1000);
      const std::vector<float> before(reducer.residual(1000).begin(), reducer.residual(1000).end());
      body(reducer);
      const std::span<const float> after = reducer.residual(1000);
      EXPECT_TRUE(std::ranges::equal(before, after));
      std::vector<std::int32_t> numbers(kCount, 3);
      reducer.all_reduce(numbers, 1001);
      EXPECT_EQ(numbers, std::vector<std::int32_t>(kCount, 3 * transport->size()));
    });
  }
}

TEST(Usage, OfMemoryThatIsNone) {
  with_reducer([](AllReducer& reducer) {
    std::vector<float> memory(kCount, 7);
    for (const Elements& wrong : nowhere()) {
      for (const std::uint64_t id :
           {std::uint64_t{5}, std::uint64_t{1000}}) {  // new, and known with other memory
        const std::string data = "the data of parameter " + std::to_string(id);
        expect_refusal(data, [&] { reducer.all_reduce(wrong, id); });
        expect_refusal(data, [&] { reducer.all_reduce_async(wrong, id).wait(); });
        expect_refusal(data, [&] { reducer.all_reduce(wrong, id, ReduceOp::maximum); });
        expect_refusal(data, [&] { reducer.all_reduce(wrong, id, ReduceOp::average); });
        const Segment named{.elements = wrong, .id = id, .name = "norm.weight"};
        expect_refusal("the data of parameter 'norm.weight' (id " + std::to_string(id) + ")", [&] {
          reducer.all_reduce({&named, 1});
        });
        const ConstElements input = wrong;
        const Elements output(memory.data(), wrong.size(), wrong.type());
        if (input.data() == memory.data() || wrong.size() > kCount) continue;
        expect_refusal("the input of parameter", [&] { reducer.all_reduce(input, output, id); });
        expect_refusal("the input of parameter",
                       [&] { reducer.all_reduce_async(input, output, id).wait(); });
      }
      const auto ranks = static_cast<std::size_t>(reducer.transport().size());
      std::vector<float> shards(ranks * wrong.size() <= ranks * kCount ? ranks * kCount : 1);
      if (wrong.type() != ElementType::float32) continue;
      expect_refusal("reduce_scatter", [&] {
        reducer.reduce_scatter({shards.data(), ranks * wrong.size(), ElementType::float32}, wrong,
                               6);
      });
      expect_refusal("reduce_scatter", [&] {
        const Elements whole(wrong.data(), ranks * kCount, ElementType::float32);
        if (wrong.size() != kCount) fail_usage("reduce_scatter of another size is above");
        reducer.reduce_scatter(whole, memory, 6);
      });
    }
    // Without elements there is nothing that could lie anywhere.
    for (const std::intptr_t address : {0, 1, -1}) {
      reducer.all_reduce(Elements(at(address), 0, ElementType::float32), 9);
    }
    expect_refusal("the input of parameter 10 has another count",
                   [&] { reducer.all_reduce(ConstElements(std::vector<float>()), memory, 10); });
    EXPECT_EQ(memory, std::vector<float>(kCount, 7));
  });
}

// All ranks learn at once that one cannot make the first call of a bucket.
TEST(Usage, OfOneRankIsToldToAll) {
  with_reducer([](AllReducer& reducer) {
    const bool odd = reducer.transport().rank() == reducer.transport().size() - 1;
    std::vector<float> memory(kCount, 7);
    for (const Elements& wrong : nowhere()) {
      const Elements right(memory.data(), kCount, ElementType::float32);
      expect_refusal("the data of", [&] { reducer.all_reduce(odd ? wrong : right, 3); });
    }
    const auto op = static_cast<ReduceOp>(odd ? 9 : 0);
    expect_refusal("operation 9", [&] { reducer.all_reduce(memory, 3, op); });
    EXPECT_EQ(memory, std::vector<float>(kCount, 7));
  });
}

TEST(Usage, OfValuesThatEnumerationsDoNotHave) {
  with_reducer([](AllReducer& reducer) {
    std::vector<float> memory(kCount, 7);
    const auto ranks = static_cast<std::size_t>(reducer.transport().size());
    std::vector<float> shards(ranks * kCount, 7);
    for (const int value : {5, 6, 100, 255}) {
      const auto op = static_cast<ReduceOp>(value);
      const std::string operation = "operation " + std::to_string(value);
      for (const std::uint64_t id : {std::uint64_t{5}, std::uint64_t{1000}}) {
        expect_refusal(operation, [&] { reducer.all_reduce(memory, id, op); });
        expect_refusal(operation, [&] { reducer.all_reduce_async(memory, id, op).wait(); });
      }
      expect_refusal("sums and averages", [&] { reducer.reduce_scatter(shards, memory, 6, op); });
      expect_refusal("sums and averages", [&] { (void)reducer.look_ahead_share(0.5F, op); });
      const auto type = static_cast<ElementType>(value < 10 ? value + 5 : value);
      expect_refusal("unknown type " + std::to_string(static_cast<int>(type)),
                     [&] { reducer.all_reduce(Elements(memory.data(), 10, type), 7); });
      expect_refusal("reduce_scatter takes elements of", [&] {
        reducer.reduce_scatter({shards.data(), 10 * ranks, type}, {memory.data(), 10, type}, 8);
      });
    }
    const Segment negative{.elements = memory, .id = 11, .dimensions = -1, .name = "bias"};
    expect_refusal("parameter 'bias' (id 11) has dimensions -1", [&] {
      reducer.all_reduce({&negative, 1});
    });
    EXPECT_EQ(memory, std::vector<float>(kCount, 7));
    EXPECT_EQ(shards, std::vector<float>(ranks * kCount, 7));
  });
}

TEST(Usage, OfSpansThatAreNull) {
  with_reducer([](AllReducer& reducer) {
    const std::span<const Segment> bucket(static_cast<const Segment*>(nullptr), 3);
    expect_refusal("the bucket is NULL", [&] { reducer.all_reduce(bucket); });
    expect_refusal("the bucket is NULL", [&] { (void)reducer.all_reduce_async(bucket); });
    expect_refusal("the bucket is NULL", [&] { reducer.forget(bucket); });
    std::vector<float> memory(kCount, 7);
    const Segment unnamed{
        .elements = memory, .id = 2, .name = {at(0) == nullptr ? nullptr : "", 4}};
    expect_refusal("parameter 2 has a name", [&] { reducer.all_reduce({&unnamed, 1}); });
    for (const std::intptr_t address : {0, 1, -1}) {
      const std::span<float> wrong(at(address), kCount);
      expect_refusal("weights", [&] { reducer.look_ahead(1000, wrong, memory, 1); });
      expect_refusal("result", [&] { reducer.look_ahead(1000, memory, wrong, 1); });
    }
    const std::span<float> too_long(memory.data(), std::size_t{1} << 52);
    expect_refusal("weights", [&] { reducer.look_ahead(7, too_long, too_long, 1); });
    expect_refusal("look_ahead", [&] { reducer.look_ahead(7, {memory.data(), kMost}, memory, 1); });
    EXPECT_EQ(memory, std::vector<float>(kCount, 7));
  });
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, Options::parse(kOptions));
      expect_refusal("a state to load is NULL", [&] {
        reducer.load(std::span<const std::byte>(static_cast<const std::byte*>(nullptr), 64));
      });
      expect_refusal("a state to load is NULL", [&] {
        reducer.load(std::span<const std::span<const std::byte>>(
            static_cast<const std::span<const std::byte>*>(nullptr), 2));
      });
      std::vector<float> memory(kCount, 1);
      reducer.all_reduce(memory, 1);
    });
  }
}

TEST(Usage, OfMessagesThatLieNowhere) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      const int next = (transport->rank() + 1) % transport->size();
      Workspace workspace;
      const Exec exec{.workspace = &workspace};
      for (const Elements& wrong : nowhere()) {
        const bool is_span = wrong.size() <= PTRDIFF_MAX / 8;  // whose bytes can be counted
        if (is_span && transport->size() > 1) {
          expect_refusal("the memory of a message", [&] { transport->send(wrong.bytes(), next); });
          expect_refusal("the memory of a message",
                         [&] { transport->recv(wrong.bytes(), next, nullptr); });
        }
        expect_refusal("the memory of a collective", [&] {
          transport->all_reduce(exec, wrong, ReduceOp::sum, Deadline::never());
        });
        if (is_span && wrong.type() == ElementType::float32) {
          expect_refusal("the memory of a collective", [&] {
            transport->reduce_scatter(exec, wrong.floats(), Deadline::never());
          });
        }
      }
      std::vector<float> memory(kCount, 1);
      transport->all_reduce(exec, memory, ReduceOp::sum, Deadline::never());
      EXPECT_EQ(memory, std::vector<float>(kCount, static_cast<float>(transport->size())));
    });
  }
}

TEST(Usage, OfAReducerThatWasMovedFrom) {
  with_reducer([](AllReducer& reducer) {
    AllReducer moved = std::move(reducer);
    std::vector<float> memory(kCount, 7);
    // NOLINTBEGIN(bugprone-use-after-move): what it tests
    expect_refusal("moved from", [&] { reducer.all_reduce(memory, 1); });
    expect_refusal("moved from", [&] { (void)reducer.all_reduce_async(memory, 1); });
    expect_refusal("moved from", [&] { reducer.reduce_scatter(memory, memory, 1); });
    expect_refusal("moved from", [&] { reducer.synchronize(); });
    expect_refusal("moved from", [&] { (void)reducer.residual(1); });
    expect_refusal("moved from", [&] { (void)reducer.options(); });
    expect_refusal("moved from", [&] { (void)reducer.save(); });
    expect_refusal("moved from", [&] { reducer.begin_step(); });
    // NOLINTEND(bugprone-use-after-move)
    reducer = std::move(moved);
  });
}

TEST(Usage, OfOptionsAndPlaces) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      const auto expect_refused = [&](const std::string& names, const Options& options,
                                      Exec where = {}) {
        expect_refusal(names, [&] { AllReducer(transport, options, where); });
      };
      expect_refused("has the value 9", {.op = static_cast<ReduceOp>(9)});
      expect_refused("has the value 7", {.checksum = static_cast<Checksum>(7)});
      expect_refused("has the value 200", {.residual_memory = static_cast<ResidualMemory>(200)});
      expect_refused("decay", {.decay = std::numeric_limits<float>::quiet_NaN()});
      expect_refused("deadline", {.deadline = std::numeric_limits<double>::quiet_NaN()});
      expect_refused("deadline", {.deadline = -1});
      expect_refused("threads", {.threads = -1});
      expect_refused("place 9", {}, {.place = static_cast<Place>(9)});
      expect_refused("place", {}, {.place = kernels::kCountedPlace});
      int stream = 0;
      expect_refused("Exec::stream", {}, {.stream = &stream});
      AllReducer reducer(transport, Options::parse(kOptions));
      std::vector<float> memory(kCount, 1);
      reducer.all_reduce(memory, 1);
    });
  }
  expect_refusal("transport", [] { AllReducer(nullptr, {}); });
  expect_refusal("why", [] { AllReducer::refuse(nullptr, "why"); });
}

// A rank whose words are no options does not leave the others waiting.
TEST(Usage, OfOneRanksWordsIsToldToAll) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const bool odd = transport->rank() == ranks - 1;
      const std::string who = odd ? "" : "rank " + std::to_string(ranks - 1) + " refuses: ";
      const auto read = [&](const char* words) {
        try {
          return Options::parse(odd ? words : kOptions);
        } catch (const UsageError& error) {
          AllReducer::refuse(transport, error.what());
        }
      };
      const auto make = [&](const char* words) { AllReducer(transport, read(words)); };
      for (const char* words : {"compressor=topq:0.01", "densty=1", "op=summ"}) {
        const std::string why = refusal_of([&] { (void)Options::parse(words); });
        EXPECT_EQ(refusal_of([&] { make(words); }), who + why);
      }
      const Options wrong{.op = odd ? static_cast<ReduceOp>(9) : ReduceOp::sum};
      expect_refusal(who + "an option has the value 9", [&] { AllReducer(transport, wrong); });
      AllReducer reducer(transport, Options::parse(kOptions));
    });
  }
}

TEST(Usage, OfWhatTransportsAreMadeOf) {
  constexpr int kInt = std::numeric_limits<int>::max();
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const int size : {0, -1, -kInt - 1, kInt}) {
    expect_refusal("size " + std::to_string(size), [&] { (void)local_transports(size); });
    expect_refusal(std::to_string(size), [&] {
      (void)tcp_transport({.host = "127.0.0.1", .rank = 0, .size = size, .job = ""},
                          Deadline::after(std::chrono::seconds(1)));
    });
    expect_refusal("topology", [&] { (void)Topology::uniform(size, 2); });
    expect_refusal("topology", [&] { (void)Topology::uniform(2, size); });
  }
  expect_refusal("topology", [] { (void)Topology::from_nodes({}); });
  const Topology topology = Topology::uniform(2, 3);
  for (const int wrong : {-1, 6, kInt, -kInt - 1}) {
    const std::string number = std::to_string(wrong);
    expect_refusal("rank " + number, [&] { (void)topology.node_of(wrong); });
    expect_refusal("rank " + number, [&] { (void)topology.local_rank(wrong); });
    expect_refusal("node " + number, [&] { (void)topology.members(wrong); });
    expect_refusal("node " + number, [&] { (void)topology.ranks_on(wrong); });
    expect_refusal("rail " + number, [&] { (void)topology.rail(wrong); });
  }
  expect_refusal("not a number",
                 [] { (void)Deadline::after(std::chrono::duration<double>(kNaN)); });
  EXPECT_TRUE(Deadline::after(std::chrono::duration<double>(-1e300)).passed());
  EXPECT_FALSE(Deadline::after(std::chrono::duration<double>(1e300)).passed());
  expect_refusal("two transports", [] {
    (void)mixed_transport(nullptr, std::move(local_transports(1)[0]), Deadline::never());
  });
  expect_refusal("nccl", [] { (void)nccl_transport(nullptr, 0); });
  const auto alone = std::move(local_transports(1)[0]);
  expect_refusal("subset", [&] { (void)alone->subset({}); });
  expect_refusal("host_timeout", [] { TcpListener({.host_timeout = kNaN}); });
}

// Whatever multiplies a gradient: each rank's own, of which 0 adds nothing.
TEST(Rates, OfZeroAddNothingAndLetWhatWaitsGoOut) {
  for (const char* schedule :
       {"dense", "gather", "balanced", "doubling", "shared", "two_level:gather"}) {
    run_worlds(schedule, [&](const std::shared_ptr<Transport>& transport) {
      const auto ranks = static_cast<float>(transport->size());
      AllReducer reducer(
          transport,
          {.compressor = "topk:0.5", .schedule = schedule, .op = ReduceOp::sum, .min_bytes = 0});
      std::vector<float> gradient(64, 1);
      Segment segment{.elements = gradient, .id = 1};
      std::vector<float> all(64);
      const auto call = [&](float rate) {
        std::ranges::fill(gradient, 1);
        segment.rate = rate;
        reducer.all_reduce({&segment, 1});
        for (std::size_t i = 0; i < all.size(); ++i) all[i] += gradient[i];
      };
      call(1);
      for (int step = 0; step < 8; ++step) call(0);
      EXPECT_EQ(all, std::vector<float>(64, ranks)) << schedule;
      call(0);
      EXPECT_EQ(gradient, std::vector<float>(64, 0)) << schedule;
      for (int step = 0; step < 9; ++step) call(step == 0 ? -2 : 0);
      EXPECT_EQ(all, std::vector<float>(64, -ranks)) << schedule;
    });
  }
}

// Also where sums would be infinite: whatever a schedule makes of them, all ranks learn of it.
TEST(Rates, ThatAreNotFiniteMakeTheResultNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const char* words :
       {"compressor=none", "compressor=int8", "schedule=dense", "schedule=auto", "enable=0",
        "min_bytes=1M", "exempt=*", "schedule=gather", "schedule=balanced", "schedule=doubling",
        "schedule=shared", "schedule=two_level:gather", "precondition=momentum:0.9",
        "precondition=second_moment:0.9 schedule=dense"}) {
    const bool is_two_level = std::string_view(words).find("two_level") != std::string_view::npos;
    run_worlds(is_two_level ? "two_level:gather" : "gather", [&](const std::shared_ptr<Transport>&
                                                                     transport) {
      const bool odd = transport->rank() == transport->size() - 1;
      AllReducer reducer(transport,
                         Options::parse(words, Options::parse("compressor=topk:0.5 schedule=gather "
                                                              "min_bytes=0")));
      for (const float wrong : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> gradient(64, 1);
        std::vector<std::uint16_t> halves(64, 0x3f80);  // 1 in bf16
        const Segment segments[] = {
            {.elements = gradient, .id = 1, .rate = odd ? wrong : 0.5F, .name = "a"},
            {.elements = {halves.data(), halves.size(), ElementType::bf16},
             .id = 2,
             .rate = odd ? wrong : 1,
             .name = "b"}};
        reducer.all_reduce(segments);
        for (const float x : gradient) EXPECT_TRUE(std::isnan(x)) << words << ": " << x;
        for (const std::uint16_t x : halves) EXPECT_GT(x & 0x7fff, 0x7f80) << words;
      }
    });
  }
}

}  // namespace
}  // namespace winnow::tests
