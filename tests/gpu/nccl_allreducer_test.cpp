// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What an AllReducer makes of buckets, in device memory and in host memory, whose messages go over
// NCCL.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>
#include <winnow/nccl.hpp>
#include <winnow/winnow.hpp>

#include "compress/compressor.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/half.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/reduce.hpp"
#include "lab/reference/place.hpp"
#include "tests/gpu/nccl_meeting.hpp"
#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

const std::vector<Parameter> kParameters = {{1, 5000}, {2, 300, 1}, {3, 2000}};
constexpr int kSteps = 3;

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
    kernels::reduce({.place = lab::kReference}, op, numbers, rare_numbers(rank));
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
