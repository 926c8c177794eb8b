// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The laws for AllReducer::all_reduce_rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>
#include <winnow/conformance/world.hpp>
#include <winnow/winnow.hpp>

#include "comm/transport/gather_values.hpp"
#include "kernels/half.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/harness/usage_error.hpp"

namespace winnow::tests {
namespace {

/// One rank's rows of a step.
struct Given {
  std::vector<std::uint64_t> ids;
  std::vector<float> values;
};

/// Hot rows, repeats and disorder; rank 1 has none in odd steps, and the last rank many.
Given make_rows(const RowTable& table, int rank, int ranks, int step) {
  std::mt19937 random(static_cast<std::uint32_t>(1000 * step + rank + 1));
  Given given;
  if (table.rows == 0 || (rank == 1 && step % 2 == 1)) return given;
  std::uniform_real_distribution<double> part(0, 1);
  std::normal_distribution<float> normal;
  const std::uint64_t count = (rank == ranks - 1 ? table.rows : table.rows / 3) + 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double skewed = std::pow(part(random), 4) * static_cast<double>(table.rows);
    given.ids.push_back(static_cast<std::uint64_t>(skewed));
    for (std::uint64_t j = 0; j < table.width; ++j) {
      given.values.push_back(j % 5 == 3 ? -0.0F : normal(random));
    }
  }
  return given;
}

std::vector<float> dense_of(const RowTable& table, const Given& given) {
  std::vector<float> dense(table.rows * table.width);
  for (std::size_t i = 0; i < given.ids.size(); ++i) {
    for (std::uint64_t j = 0; j < table.width; ++j) {
      dense[given.ids[i] * table.width + j] += given.values[i * table.width + j];
    }
  }
  return dense;
}

/// Rows as the reducer takes them, of a type.
class Typed {
 public:
  Typed(const std::vector<float>& values, ElementType type) : type_(type), floats_(values) {
    if (type == ElementType::float32) return;
    halves_.resize(values.size());
    kernels::narrow({}, type, values, halves_);
  }
  ConstElements elements() const {
    if (type_ == ElementType::float32) return floats_;
    return {halves_.data(), halves_.size(), type_};
  }
  std::vector<float> floats() const { return widened(elements()); }

  static std::vector<float> widened(const ConstElements& elements) {
    std::vector<float> floats(elements.size());
    if (elements.type() == ElementType::float32) {
      std::ranges::copy(elements.as<float>(), floats.begin());
    } else {
      kernels::widen({}, elements.type(), elements.halves(), floats);
    }
    return floats;
  }

 private:
  ElementType type_;
  std::vector<float> floats_;
  std::vector<std::uint16_t> halves_;
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

Options sums(RowCoding rows = RowCoding::exact) {
  return {.op = ReduceOp::sum, .min_bytes = 0, .rows = rows, .threads = 1};
}

/// The dense sum in rank order, as each rank's rows travel.
std::vector<float> dense_sum(const RowTable& table, int ranks, int step, ElementType type,
                             std::vector<bool>& touched) {
  std::vector<float> sum(table.rows * table.width);
  touched.assign(table.rows, false);
  for (int rank = 0; rank < ranks; ++rank) {
    Given given = make_rows(table, rank, ranks, step);
    for (const std::uint64_t id : given.ids) touched[id] = true;
    given.values = Typed(given.values, type).floats();
    const std::vector<float> own = Typed(dense_of(table, given), type).floats();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
  }
  return sum;
}

TEST(Rows, EqualTheDenseSumInRankOrder) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank(), size = transport->size();
      AllReducer reducer(transport, sums());
      std::uint64_t id = 0;
      for (const auto type : {ElementType::float32, ElementType::bf16, ElementType::fp16}) {
        for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
          for (const auto& [rows, width] :
               {std::pair(1, 1), {7, 3}, {300, 16}, {64, 1}, {2000, 5}, {0, 4}, {5, 0}}) {
            const RowTable table{++id, static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(width)};
            for (int step = 0; step < 2; ++step) {
              const Given given = make_rows(table, rank, size, step);
              const Typed mine(given.values, type);
              const Rows result = reducer.all_reduce_rows(given.ids, mine.elements(), table, op);
              std::vector<bool> touched;
              std::vector<float> expected = dense_sum(table, size, step, type, touched);
              if (op == ReduceOp::average) {
                for (float& value : expected) value *= 1 / static_cast<float>(size);
              }
              expected = Typed(expected, type).floats();
              EXPECT_EQ(result.ids.size(),
                        static_cast<std::size_t>(std::ranges::count(touched, true)));
              EXPECT_EQ(result.values.type(), type);
              const std::vector<float> values = Typed::widened(result.values);
              for (std::size_t i = 0; i < result.ids.size(); ++i) {
                EXPECT_TRUE(touched[result.ids[i]]);
                EXPECT_TRUE(i == 0 || result.ids[i - 1] < result.ids[i]);
                EXPECT_TRUE(same_bits(
                    std::span(values).subspan(i * table.width, table.width),
                    std::span(expected).subspan(result.ids[i] * table.width, table.width)))
                    << rows << " x " << width << ", step " << step << ", row " << result.ids[i];
              }
            }
          }
        }
      }
      EXPECT_EQ(reducer.last().schedule, "rows");
    });
  }
}

TEST(Rows, ANaNStaysWhereItIs) {
  run_ranks(3, [](const std::shared_ptr<Transport>& transport) {
    AllReducer reducer(transport, sums());
    std::vector<float> values(8, 1);
    if (transport->rank() == 0) values[5] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<std::uint64_t> ids = {9, 2};
    const Rows result = reducer.all_reduce_rows(ids, values, {1, 10, 4});
    const auto sum = result.values.as<float>();
    for (std::size_t i = 0; i < sum.size(); ++i) {
      EXPECT_EQ(std::isnan(sum[i]), i == 1) << i;  // row 2 comes first
    }
    EXPECT_EQ(reducer.last().poisoned, 0U);
  });
}

/// Hot rows, which all ranks have, are as many bytes for each rank.
TEST(Rows, NoRankIsBusierThanOthers) {
  run_ranks(4, [](const std::shared_ptr<Transport>& transport) {
    const auto size = static_cast<std::uint64_t>(transport->size());
    const RowTable table{1, 10000, 16};
    std::vector<std::uint64_t> ids;
    for (std::uint64_t row = 0; row < 1000; ++row) ids.push_back(row);
    const std::vector<float> values(ids.size() * table.width, 1);
    AllReducer reducer(transport, sums());
    reducer.all_reduce_rows(ids, values, table);
    const std::uint64_t sent = reducer.last().wire_bytes;
    std::vector<std::uint64_t> all(size);
    transport->all_gather({}, std::as_bytes(std::span(&sent, 1)),
                          std::as_writable_bytes(std::span(all)), Deadline::never());
    std::uint64_t total = 0;
    for (const std::uint64_t bytes : all) total += bytes;
    EXPECT_LE(static_cast<double>(std::ranges::max(all) * size), 1.05 * static_cast<double>(total));
    // Each row once to its owner, and once from it to all: of 10 bits for its number at most.
    const double least = 2 * static_cast<double>(ids.size() * (size - 1)) * (16 * 4 + 10 / 8.0);
    const double headers = static_cast<double>(size * (size - 1)) * 2 * (2 * 64 + 4 * 8);
    EXPECT_LE(static_cast<double>(total), least + headers);
  });
}

/// Over ranks, gradients and residuals before add up to results and residuals afterwards.
TEST(Rows, LossyCodingsLoseNothing) {
  for (const int ranks : rank_counts()) {
    run_ranks(ranks, [](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank(), size = transport->size();
      for (const RowCoding coding : {RowCoding::bf16, RowCoding::int8}) {
        AllReducer reducer(transport->duplicate(Deadline::never()), sums(coding));
        const RowTable table{5, 200, 24};
        std::vector<double> mass(table.rows * table.width), applied(mass.size());
        std::vector<double> scale(mass.size(), 1e-6);
        for (int step = 0; step < 4; ++step) {
          for (int r = 0; r < size; ++r) {
            const auto dense = dense_of(table, make_rows(table, r, size, step));
            for (std::size_t i = 0; i < mass.size(); ++i) {
              mass[i] += static_cast<double>(dense[i]);
              scale[i] += std::abs(static_cast<double>(dense[i]));
            }
          }
          const Given given = make_rows(table, rank, size, step);
          const Rows result = reducer.all_reduce_rows(given.ids, given.values, table);
          const auto values = result.values.as<float>();
          for (std::size_t i = 0; i < values.size(); ++i) {
            applied[result.ids[i / table.width] * table.width + i % table.width] +=
                static_cast<double>(values[i]);
          }
          const auto residual = reducer.residual(table.id);
          EXPECT_EQ(residual.size(), mass.size());
          std::vector<float> all(mass.size() * static_cast<std::size_t>(size));
          transport->all_gather({}, std::as_bytes(residual), std::as_writable_bytes(std::span(all)),
                                Deadline::never());
          double largest = 0;
          for (std::size_t i = 0; i < mass.size(); ++i) {
            double waiting = 0;
            for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r) {
              waiting += static_cast<double>(all[r * mass.size() + i]);
            }
            largest = std::max(largest, std::abs(waiting));
            EXPECT_NEAR(applied[i] + waiting, mass[i], 1e-5 * scale[i]) << "element " << i;
          }
          EXPECT_TRUE(largest > 0 || size == 1);
        }
      }
    });
  }
}

std::vector<float> floats_of(const Rows& rows) {
  const auto values = rows.values.as<float>();
  return {values.begin(), values.end()};
}

TEST(Rows, AStepThatIsDiscardedLeavesNoTraceAndASavedStateGoesOn) {
  run_ranks(3, [](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank(), size = transport->size();
    const RowTable table{5, 100, 8};
    const auto of_step = [&](AllReducer& reducer, int step) {
      const Given given = make_rows(table, rank, size, step);
      return floats_of(reducer.all_reduce_rows(given.ids, given.values, table));
    };
    std::optional<AllReducer> reducer;
    reducer.emplace(transport->duplicate(Deadline::never()), sums(RowCoding::int8));
    of_step(*reducer, 0);
    const std::vector<std::byte> state = reducer->save();
    const auto before =
        std::vector<float>(reducer->residual(5).begin(), reducer->residual(5).end());
    reducer->begin_step();
    of_step(*reducer, 1);
    EXPECT_FALSE(same_bits(reducer->residual(5), before));
    reducer->discard_step();
    EXPECT_TRUE(same_bits(reducer->residual(5), before));
    const std::vector<float> next = of_step(*reducer, 2);
    reducer.reset();
    AllReducer again(transport->duplicate(Deadline::never()), sums(RowCoding::int8));
    again.load(state);
    EXPECT_TRUE(same_bits(of_step(again, 2), next));
  });
}

TEST(Rows, PoisonOfALossyCodingPasses) {
  run_ranks(3, [](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank(), size = transport->size();
    AllReducer reducer(transport, sums(RowCoding::int8));
    const RowTable table{5, 50, 8};
    Given given = make_rows(table, rank, size, 0);
    reducer.all_reduce_rows(given.ids, given.values, table);
    given = make_rows(table, rank, size, 2);
    std::vector<float> acc(reducer.residual(5).begin(), reducer.residual(5).end());
    const std::vector<float> dense = dense_of(table, given);
    std::vector<bool> has(table.rows);
    for (const std::uint64_t id : given.ids) has[id] = true;
    for (std::size_t i = 0; i < acc.size(); ++i) {
      if (has[i / table.width]) acc[i] += dense[i];
    }
    if (rank == 2) {
      given.values[3] = std::numeric_limits<float>::infinity();
      acc[given.ids[0] * table.width + 3] = reducer.residual(5)[given.ids[0] * table.width + 3];
    }
    const Rows result = reducer.all_reduce_rows(given.ids, given.values, table);
    EXPECT_TRUE(std::ranges::all_of(result.values.as<float>(),
                                    [](float value) { return std::isnan(value); }));
    EXPECT_GT(result.values.size(), 0U);
    EXPECT_EQ(reducer.last().poisoned, 1U);
    const auto residual = reducer.residual(5);
    for (std::size_t i = 0; i < acc.size(); ++i) EXPECT_NEAR(residual[i], acc[i], 1e-5) << i;
    given = make_rows(table, rank, size, 3);
    const Rows next = reducer.all_reduce_rows(given.ids, given.values, table);
    EXPECT_TRUE(std::ranges::all_of(next.values.as<float>(),
                                    [](float value) { return std::isfinite(value); }));
  });
}

TEST(Rows, WrongRowsAreAUsageErrorOnEveryRankAndTheNextCallGoesOn) {
  run_ranks(3, [](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    AllReducer reducer(transport, sums(RowCoding::bf16));
    const RowTable table{5, 50, 2};
    const std::vector<float> values = {1, 2};
    const auto call = [&](std::uint64_t row, std::size_t elements = 2) {
      return usage_error([&] {
        const Rows result =
            reducer.all_reduce_rows(std::span(&row, 1), std::span(values).first(elements), table);
        EXPECT_EQ(result.values.as<float>()[0], static_cast<float>(transport->size()));
      });
    };
    for (int round = 0; round < 2; ++round) {  // of a table that ranks do not know yet, and know
      const std::string outside = call(rank == 1 ? 50 : 7);
      EXPECT_NE(
          outside.find(rank == 1 ? "row 50 is outside of a table of 50 x 2" : "rank 1 refuses"),
          std::string::npos)
          << outside;
      const std::string short_of = call(7, rank == 2 ? 1 : 2);
      EXPECT_NE(short_of.find(rank == 2 ? "do not have 1 elements" : "rank 2 refuses"),
                std::string::npos)
          << short_of;
      EXPECT_EQ(call(7), "");
    }
    const auto refused = [&](const RowTable& other, std::optional<ReduceOp> op,
                             const ConstElements& rows) {
      const std::uint64_t row = 0;
      return usage_error([&] { reducer.all_reduce_rows(std::span(&row, 1), rows, other, op); });
    };
    EXPECT_NE(refused(table, ReduceOp::maximum, values).find("sums and averages"),
              std::string::npos);
    const std::vector<double> doubles = {1, 2};
    EXPECT_NE(refused(table, {}, doubles).find("float32, bf16 and fp16"), std::string::npos);
    EXPECT_NE(refused({5, 51, 2}, {}, values).find("had 100 elements"), std::string::npos);
    EXPECT_NE(refused({6, static_cast<std::uint64_t>(50 + rank), 2}, {}, values).find("differs"),
              std::string::npos);
    EXPECT_NE(refused({6, std::uint64_t{1} << 60, 2}, {}, values).find("2^32 - 1"),
              std::string::npos);
    EXPECT_EQ(call(7), "");
  });
}

TEST(Rows, ALostRankIsAnErrorAndNothingIsLost) {
  run_ranks(2, 1, [](std::span<std::shared_ptr<Transport>> transports) {
    const RowTable table{5, 10, 4};
    const std::vector<std::uint64_t> ids = {3};
    const std::vector<float> values = {1, 2, 3, 4.25F};
    const std::shared_ptr<Transport> own = transports[0]->duplicate(conformance::soon());
    AllReducer reducer(own, sums(RowCoding::int8));
    EXPECT_EQ(reducer.all_reduce_rows(ids, values, table).ids.size(), 1U);
    comm::gather_values(*transports[0], own->rank(), conformance::soon());  // all have that
    if (own->rank() == 1) return own->abort("this rank is lost");
    const std::vector<float> before(reducer.residual(5).begin(), reducer.residual(5).end());
    EXPECT_THROW(reducer.all_reduce_rows(ids, values, table), CommError);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const float added = i / 4 == 3 ? values[i % 4] : 0;
      EXPECT_EQ(reducer.residual(5)[i], before[i] + added) << i;
    }
  });
}

}  // namespace
}  // namespace winnow::tests
