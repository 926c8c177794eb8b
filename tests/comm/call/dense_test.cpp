// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Elements of every type by every operation, over transports and through an AllReducer. Results are
// exact: floats are small whole numbers, integers wrap.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/half.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/recorded_writes.hpp"
#include "tests/harness/usage_error.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::minimum, ReduceOp::maximum,
                             ReduceOp::product};

Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

/// Floats go from -7 to 7, so that the product over 7 ranks is exact in float32; integers take any
/// value.
template <class T>
T element(int rank, std::uint64_t i) {
  std::uint64_t hash =
      (i + 1) * 0x9E3779B97F4A7C15u + (static_cast<unsigned>(rank) + 1) * 0xD6E8FEB86659FD93u;
  hash = (hash ^ (hash >> 32)) * 0xBF58476D1CE4E5B9u;
  hash ^= hash >> 29;
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(hash % 15) - T{7};
  return static_cast<T>(hash);
}

template <class T>
std::vector<T> elements_of(int rank, std::uint64_t count) {
  std::vector<T> elements(count);
  for (std::uint64_t i = 0; i < count; ++i) elements[i] = element<T>(rank, i);
  return elements;
}

/// ReduceOp's definition, in arithmetic that cannot round or overflow.
template <class T>
T expected(ReduceOp op, int ranks, std::uint64_t i) {
  using Wide = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
  Wide sum = 0, product = 1;
  T least = element<T>(0, i), most = least;
  for (int rank = 0; rank < ranks; ++rank) {
    const T x = element<T>(rank, i);
    sum += static_cast<Wide>(x);
    product *= static_cast<Wide>(x);
    least = std::min(least, x);
    most = std::max(most, x);
  }
  const T total = static_cast<T>(sum), count = static_cast<T>(ranks);
  switch (op) {
    case ReduceOp::sum:
      return total;
    case ReduceOp::average:
      if constexpr (std::is_floating_point_v<T>) return total * (T{1} / count);
      return static_cast<T>(total / count);
    case ReduceOp::minimum:
      return least;
    case ReduceOp::maximum:
      return most;
    default:
      return static_cast<T>(product);
  }
}

template <class T>
void expect_reduced(const std::vector<T>& got, ReduceOp op, int ranks, std::uint64_t first = 0) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < got.size(); ++i) {
    wrong += got[i] == expected<T>(op, ranks, first + i) ? 0U : 1U;
  }
  EXPECT_EQ(wrong, 0U) << "of " << got.size() << ", operation " << static_cast<int>(op) << ", "
                       << ranks << " ranks";
}

template <class T>
class Typed : public testing::Test {};
using Types = testing::Types<float, double, std::int8_t, std::uint8_t, std::int32_t, std::uint32_t,
                             std::int64_t, std::uint64_t>;
TYPED_TEST_SUITE(Typed, Types);

// Sizes 0, 1, below the number of ranks, odd, and several blocks in each chunk of the ring.
TYPED_TEST(Typed, TransportsReduceByTheirOwnAndByTheRing) {
  using T = TypeParam;
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      Workspace workspace;
      const Exec exec{.workspace = &workspace};
      const int size = transport->size();
      const auto p = static_cast<std::uint64_t>(size);
      for (const std::uint64_t count :
           std::initializer_list<std::uint64_t>{0, 1, p - 1, 1001, 300000 * p / sizeof(T) + 13}) {
        for (const ReduceOp op : kOps) {
          if (op == ReduceOp::average || (count > 2000 && op != ReduceOp::sum)) continue;
          auto native = elements_of<T>(transport->rank(), count), ring = native;
          transport->all_reduce(exec, native, op, soon());
          transport->Transport::all_reduce(exec, ring, op, soon());
          expect_reduced(native, op, size);
          expect_reduced(ring, op, size);
        }
      }
    });
  }
}

TYPED_TEST(Typed, ABucketIsReducedInPlaceAndScattered) {
  using T = TypeParam;
  const bool gradient = std::is_same_v<T, float>;
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.compressor = "topk:0.01", .schedule = "least_bytes"});
      const int size = transport->size(), rank = transport->rank();
      for (const ReduceOp op : kOps) {
        if (gradient && op <= ReduceOp::average) continue;
        for (const std::uint64_t count : {0U, 1U, 5U, 1001U, 70001U}) {
          for (int call = 0; call < 2; ++call) {
            auto one = elements_of<T>(rank, count);
            reducer.all_reduce(one, count, op);
            expect_reduced(one, op, size);
          }
          const Stats stats = reducer.last();
          EXPECT_EQ(stats.schedule, count == 0 ? "" : "dense");
          EXPECT_EQ(stats.kept, count);
          const auto p = static_cast<std::uint64_t>(size);
          EXPECT_EQ(stats.dense_wire_bytes, 2 * (count - count / p) * sizeof(T));
          EXPECT_EQ(stats.wire_bytes, reduces_in_one_step(count, sizeof(T), size)
                                          ? (p - 1) * count * sizeof(T)
                                          : stats.dense_wire_bytes);
          EXPECT_EQ(stats.coding, "");
        }
        auto all = elements_of<T>(rank, 1300);
        std::vector<T> first(all.begin(), all.begin() + 1000),
            second(all.begin() + 1000, all.end());
        const Segment segments[] = {{.elements = second, .id = 2, .dimensions = 1},
                                    {.elements = first, .id = 1, .name = "first"}};
        reducer.all_reduce(segments, op);
        expect_reduced(first, op, size);
        expect_reduced(second, op, size, 1000);
      }
    });
  }
}

// Stats count the transport's bytes: a ring of elements of this size, or all of few to all ranks.
TYPED_TEST(Typed, BytesOnTheWireAreThoseOfTheElements) {
  using T = TypeParam;
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      const auto p = static_cast<std::uint64_t>(transport->size());
      AllReducer reducer(transport,
                         {.links = kGivenLinks, .deadline = 60});  // the ring, also over MPI
      const auto expect_sent = [&](std::uint64_t count, std::uint64_t bytes) {
        auto values = elements_of<T>(transport->rank(), count);
        reducer.all_reduce(values, count, ReduceOp::maximum);
        const std::uint64_t before = transport->bytes_sent();
        reducer.all_reduce(values, count, ReduceOp::maximum);
        EXPECT_EQ(transport->bytes_sent() - before, bytes);
        EXPECT_EQ(reducer.last().wire_bytes, bytes);
      };
      expect_sent(10'000 * p, 2 * 10'000 * (p - 1) * sizeof(T));
      expect_sent(9, 9 * (p - 1) * sizeof(T));
    });
  }
}

// Any NaN becomes one NaN, and -0 is below 0: equal bits on every rank, whichever rank has them.
template <class T>
void expect_ordered_zeros_and_nans() {
  constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const int size = transport->size();
      if (size == 1) return;
      Workspace workspace;
      const Exec exec{.workspace = &workspace};
      for (const bool ring : {false, true}) {
        for (const ReduceOp op : {ReduceOp::minimum, ReduceOp::maximum}) {
          // Rank r has the rare value in the ring chunk that rank r + 1 completes.
          std::vector<T> values(2 * static_cast<std::size_t>(size),
                                op == ReduceOp::minimum ? T{0} : -T{0});
          const auto own = 2 * static_cast<std::size_t>((transport->rank() + 1) % size);
          values[own] = -kNaN;
          values[own + 1] = -values[own + 1];
          if (ring) {
            transport->Transport::all_reduce(exec, values, op, soon());
          } else {
            transport->all_reduce(exec, values, op, soon());
          }
          for (std::size_t i = 0; i < values.size(); i += 2) {
            EXPECT_TRUE(std::isnan(values[i]) && !std::signbit(values[i])) << values[i];
            EXPECT_EQ(values[i + 1], T{0});
            EXPECT_EQ(std::signbit(values[i + 1]), op == ReduceOp::minimum);
          }
        }
      }
    });
  }
}

TEST(DenseOnly, MinimumAndMaximumOfZerosAndNaNAreTheSameOnEveryRank) {
  expect_ordered_zeros_and_nans<float>();
  expect_ordered_zeros_and_nans<double>();
}

TEST(DenseOnly, HalvesAreReducedAsFloatsAndRoundedOnce) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport,
                         {.compressor = "topk:0.01", .schedule = "least_bytes", .min_bytes = 0});
      for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
        for (const ReduceOp op : {ReduceOp::minimum, ReduceOp::maximum, ReduceOp::product}) {
          const auto floats = elements_of<float>(transport->rank(), 1001);
          std::vector<std::uint16_t> halves(floats.size()), rounded(floats.size());
          kernels::narrow({}, type, floats, halves);
          auto mixed = floats;
          const Segment segments[] = {{.elements = {halves.data(), halves.size(), type}, .id = 1},
                                      {.elements = mixed, .id = 2}};
          reducer.all_reduce(segments, op);
          expect_reduced(mixed, op, transport->size());
          kernels::narrow({}, type, mixed, rounded);
          EXPECT_EQ(halves, rounded);
        }
      }
    });
  }
}

TEST(DenseOnly, StatsSayWhatTravelsDense) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, 2, [](std::span<std::shared_ptr<Transport>> transports) {
      const auto& transport = transports[0];
      AllReducer reducer(
          transport, {.compressor = "topk:0.01", .schedule = "least_bytes", .op = ReduceOp::sum});
      std::vector<float> floats(100000, 1.0F);
      std::vector<std::int32_t> integers(100000, 1);
      reducer.all_reduce(integers, 1);
      EXPECT_EQ(reducer.last().reason, "int32 elements travel dense");
      EXPECT_EQ(integers[9], transport->size());  // the op of the options
      reducer.all_reduce(floats, 2, ReduceOp::maximum);
      EXPECT_EQ(reducer.last().reason, "the maximum travels dense");
      EXPECT_EQ(reducer.last().schedule, "dense");
      EXPECT_EQ(reducer.bucket_stats().size(), 2U);
      EXPECT_EQ(reducer.bucket_stats()[1].compressed, 0U);

      AllReducer maximum(transports[1], {.links = kGivenLinks, .op = ReduceOp::maximum});
      std::ranges::fill(floats, static_cast<float>(transport->rank()));
      maximum.all_reduce(floats, 2);
      EXPECT_EQ(floats[99999], static_cast<float>(transport->size() - 1));
      std::ranges::fill(floats, 1.0F);
      maximum.all_reduce(floats, 3, ReduceOp::average);
      EXPECT_NE(maximum.last().reason, "the maximum travels dense");
    });
  }
}

TEST(DenseOnly, ResultsAreMeasuredInTheirOwnType) {
  for (const int ranks : rank_counts()) {
    const RecordedErrors errors;  // the tables
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.links = kGivenLinks, .stats = 2});
      std::vector<std::int64_t> values = {0, 0, std::int64_t{1} << 40};
      reducer.all_reduce(values, 1, ReduceOp::maximum);
      EXPECT_EQ(reducer.last().measured, 3U);
      EXPECT_EQ(reducer.last().nonzero, 1U);
      const std::uint64_t before = reducer.last().digest;
      values[2] += std::int64_t{1} << 40;  // upper halves count
      reducer.all_reduce(values, 1, ReduceOp::maximum);
      EXPECT_NE(reducer.last().digest, before);
      std::vector<double> numbers = {-0.0, std::nan("1"), 5e-324};
      reducer.all_reduce(numbers, 2, ReduceOp::sum);
      EXPECT_EQ(reducer.last().nonzero, 2U);
    });
  }
}

// Residuals wait, and compressed sums continue as if no plain call had come between.
TEST(DenseOnly, ResidualsAreLeftAlone) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, 2, [](std::span<std::shared_ptr<Transport>> transports) {
      const int rank = transports[0]->rank();
      const Options options{.compressor = "topk:0.02", .schedule = "gather", .min_bytes = 0};
      AllReducer between(transports[0], options), plain(transports[1], options);
      for (int step = 0; step < 3; ++step) {
        auto a = make_gradient(Kind::normal, 3001, rank, step, 1), b = a, c = a;
        between.all_reduce(a, 1);
        plain.all_reduce(b, 1);
        EXPECT_TRUE(same_bits(a, b));
        const std::vector<float> before(between.residual(1).begin(), between.residual(1).end());
        for (const ReduceOp op : {ReduceOp::minimum, ReduceOp::maximum, ReduceOp::product}) {
          auto x = c;
          between.all_reduce(x, 1, op);
        }
        std::vector<double> other(7, 1.0);
        between.all_reduce(other, 1);  // a different tensor with the same id
        EXPECT_TRUE(same_bits(between.residual(1), before));
        EXPECT_TRUE(same_bits(between.residual(1), plain.residual(1)));
      }
      EXPECT_TRUE(between.residual(2).empty());
    });
  }
}

TEST(DenseOnly, CallsInFlightHaveTheirOwnOperation) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.links = kGivenLinks});
      const int rank = transport->rank(), size = transport->size();
      auto a = elements_of<std::int64_t>(rank, 5000), b = a, c = a;
      Work first = reducer.all_reduce_async(a, 1, ReduceOp::minimum);
      Work second = reducer.all_reduce_async(b, 1, ReduceOp::maximum);
      Work third = reducer.all_reduce_async(c, 1, ReduceOp::sum);
      third.wait();
      second.wait();
      first.wait();
      expect_reduced(a, ReduceOp::minimum, size);
      expect_reduced(b, ReduceOp::maximum, size);
      expect_reduced(c, ReduceOp::sum, size);
    });
  }
}

TEST(DenseOnly, TypesAndOperationsThatDifferAreAnErrorOnEveryRank) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      if (transport->size() == 1) return;
      const bool odd = transport->rank() == 1;
      AllReducer reducer(transport, {.compressor = "none"});
      std::vector<float> floats(1000, 3.0F);
      std::vector<std::int32_t> integers(1000, 3);
      const auto op = usage_error(
          [&] { reducer.all_reduce(floats, 1, odd ? ReduceOp::minimum : ReduceOp::maximum); });
      EXPECT_NE(op.find("operation"), std::string::npos) << op;
      const auto kind = usage_error(
          [&] { reducer.all_reduce(floats, 1, odd ? ReduceOp::sum : ReduceOp::average); });
      EXPECT_NE(kind.find("operation"), std::string::npos) << kind;
      const auto type = usage_error(
          [&] { odd ? reducer.all_reduce(floats, 1) : reducer.all_reduce(integers, 1); });
      EXPECT_NE(type.find("types"), std::string::npos) << type;
      EXPECT_EQ(floats, std::vector<float>(1000, 3.0F));
      EXPECT_EQ(integers, std::vector<std::int32_t>(1000, 3));
      reducer.all_reduce(integers, 1, ReduceOp::sum);
      EXPECT_EQ(integers[0], 3 * transport->size());
    });
  }
}

TEST(DenseOnly, TakesNoRate) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.links = kGivenLinks});
      std::vector<float> floats(10, 1.0F);
      const Segment segment{
          .elements = floats, .id = 1, .rate = transport->rank() == 0 ? 0.5F : 1.0F};
      const auto text = usage_error([&] { reducer.all_reduce({&segment, 1}, ReduceOp::maximum); });
      const char* const why = transport->rank() == 0 ? "parameter 1 has a rate" : "rank 0 refuses";
      EXPECT_NE(text.find(why), std::string::npos) << text;
      EXPECT_EQ(floats[0], 1.0F);
    });
  }
}

TEST(DenseOnly, ABucketOfSeveralTypesIsRefused) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      AllReducer reducer(transport, {.links = kGivenLinks});
      std::vector<float> floats(10, 1.0F);
      std::vector<std::int32_t> integers(10, 1);
      std::vector<std::int64_t> longs(10, 1);
      const Segment mixed[] = {{.elements = floats, .id = 1}, {.elements = integers, .id = 2}};
      const auto text = usage_error([&] { reducer.all_reduce(mixed); });
      EXPECT_NE(text.find("parameter 2 has int32 elements in a bucket of float32"),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("a call of its own"), std::string::npos) << text;
      const Segment whole[] = {{.elements = longs, .id = 1}, {.elements = integers, .id = 2}};
      EXPECT_NE(usage_error([&] { reducer.all_reduce(whole, ReduceOp::maximum); }), "");
      EXPECT_EQ(floats[0], 1.0F);
    });
  }
}

}  // namespace
}  // namespace winnow::tests
