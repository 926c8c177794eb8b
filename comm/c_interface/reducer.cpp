// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include <winnow/allreducer.hpp>

#include "comm/c_interface/given.hpp"
#include "comm/c_interface/place.hpp"
#include "comm/c_interface/stats_json.hpp"
#include "comm/c_interface/status.hpp"
#include "comm/c_interface/text.hpp"
#include "comm/c_interface/transport.hpp"
#include "comm/plan/bucket.hpp"

using winnow::comm::expect_given;
using winnow::comm::guarded;

struct winnow_reducer {
  winnow::AllReducer reducer;
  std::vector<winnow::Segment> segments;  // of the current call; keeps its memory
};

struct winnow_work {
  winnow::Work work;
};

struct winnow_state {
  std::vector<std::byte> bytes;
};

namespace {

static_assert(static_cast<int>(winnow::ElementType::float32) == WINNOW_FLOAT32 &&
              static_cast<int>(winnow::ElementType::bf16) == WINNOW_BF16 &&
              static_cast<int>(winnow::ElementType::fp16) == WINNOW_FP16 &&
              static_cast<int>(winnow::ElementType::float64) == WINNOW_FLOAT64 &&
              static_cast<int>(winnow::ElementType::int8) == WINNOW_INT8 &&
              static_cast<int>(winnow::ElementType::uint8) == WINNOW_UINT8 &&
              static_cast<int>(winnow::ElementType::int32) == WINNOW_INT32 &&
              static_cast<int>(winnow::ElementType::uint32) == WINNOW_UINT32 &&
              static_cast<int>(winnow::ElementType::int64) == WINNOW_INT64 &&
              static_cast<int>(winnow::ElementType::uint64) == WINNOW_UINT64);
static_assert(static_cast<int>(winnow::ReduceOp::sum) == WINNOW_SUM &&
              static_cast<int>(winnow::ReduceOp::average) == WINNOW_AVERAGE &&
              static_cast<int>(winnow::ReduceOp::minimum) == WINNOW_MINIMUM &&
              static_cast<int>(winnow::ReduceOp::maximum) == WINNOW_MAXIMUM &&
              static_cast<int>(winnow::ReduceOp::product) == WINNOW_PRODUCT);

std::string json_of(const winnow::AllReducer& reducer, int stats) {
  using winnow::comm::to_json;
  switch (stats) {
    case WINNOW_LAST_CALL:
      return to_json(reducer.last());
    case WINNOW_ALL_CALLS:
      return to_json(reducer.totals());
    case WINNOW_BUCKETS:
      return to_json(reducer.bucket_stats());
    case WINNOW_SCHEDULES:
      return to_json(reducer.schedule_stats());
    default:
      winnow::fail_usage("stats " + std::to_string(stats) + " are none of winnow_stats");
  }
}

winnow::Options options_of(const winnow_reducer_settings& settings) {
  const std::string refusal(winnow::comm::text_of(settings.refusal, "refusal"));
  WINNOW_EXPECTS(settings.refusal == nullptr, refusal);
  const std::string_view words = winnow::comm::text_of(settings.options, "options");
  return winnow::Options::from_environment(winnow::Options::parse(words));
}

winnow::ElementType type_of(std::int32_t type, std::uint64_t id, std::string_view name = {}) {
  WINNOW_EXPECTS(type >= WINNOW_FLOAT32 && type <= WINNOW_UINT64,
                 winnow::compress::label_of(id, name) + " has element type " +
                     std::to_string(type) + ", which is none of winnow_element_type");
  return static_cast<winnow::ElementType>(type);
}

winnow::Segment segment_of(const winnow_segment& given) {
  const std::string_view name = winnow::comm::text_of(given.name, "name");
  const winnow::ElementType type = type_of(given.type, given.id, name);
  winnow::Segment segment{.elements = {given.data, given.count, type},
                          .id = given.id,
                          .dimensions = given.dimensions,
                          .rate = given.rate,
                          .name = name};
  constexpr std::size_t kWithRate = offsetof(winnow_segment, rate) + sizeof given.rate;
  if (given.struct_bytes < kWithRate) segment.rate = 1;
  WINNOW_EXPECTS(given.exempt == 0 || given.exempt == 1,
                 winnow::compress::label_of(given.id, name) + " has exempt " +
                     std::to_string(given.exempt) + ": must be 0 or 1");
  segment.exempt = given.exempt == 1;
  if (given.input != nullptr) segment.input = {given.input, given.count, type};
  return segment;
}

/// Segments as the AllReducer takes them.
std::span<const winnow::Segment> bucket_of(winnow_reducer& reducer, const winnow_segment* bucket,
                                           std::size_t segments) {
  reducer.segments.clear();
  if (segments == 0) return {};
  const std::size_t stride = winnow::comm::read(bucket, "bucket").struct_bytes;
  winnow::comm::expect_memory(bucket, segments, stride, "bucket");
  const auto* next = reinterpret_cast<const std::byte*>(bucket);
  for (std::size_t i = 0; i < segments; ++i, next += stride) {
    const auto given =
        winnow::comm::read(reinterpret_cast<const winnow_segment*>(next), "a segment");
    WINNOW_EXPECTS(given.struct_bytes == stride, "segments differ in struct_bytes");
    reducer.segments.push_back(segment_of(given));
  }
  return reducer.segments;
}

std::optional<winnow::ReduceOp> op_of(int op) {
  WINNOW_EXPECTS(op >= WINNOW_DEFAULT_OP && op <= WINNOW_PRODUCT,
                 "op " + std::to_string(op) + " is none of winnow_reduce_op");
  if (op == WINNOW_DEFAULT_OP) return {};
  return static_cast<winnow::ReduceOp>(op);
}

void put(const std::string& whole, char* text, std::size_t room, std::size_t* bytes) {
  expect_given(bytes, "bytes");
  if (room > 0) {
    char* const to = &expect_given(text, "text");
    const std::size_t fits = std::min(whole.size(), room - 1);
    std::copy_n(whole.data(), fits, to);
    to[fits] = '\0';
  }
  *bytes = whole.size() + 1;
}

}  // namespace

extern "C" {

int winnow_reducer_create(winnow_transport* transport, const winnow_reducer_settings* settings,
                          winnow_reducer** reducer) {
  return guarded([&] {
    const auto& over = expect_given(transport, "transport").transport;
    winnow::Options options;
    winnow::Exec where;
    try {
      expect_given(reducer, "reducer");
      const auto given = winnow::comm::read(settings, "settings");
      where = winnow::comm::exec_of(given.place, given.stream);
      options = options_of(given);
    } catch (const winnow::UsageError& error) {
      winnow::AllReducer::refuse(over, error.what());
    }
    *reducer = new winnow_reducer{winnow::AllReducer(over, options, where), {}};
  });
}

void winnow_reducer_destroy(winnow_reducer* reducer) {
  delete reducer;
}

int winnow_all_reduce(winnow_reducer* reducer, const winnow_segment* bucket, std::size_t segments,
                      int op) {
  return guarded([&] {
    winnow_reducer& given = expect_given(reducer, "reducer");
    given.reducer.all_reduce(bucket_of(given, bucket, segments), op_of(op));
  });
}

int winnow_reduce_scatter(winnow_reducer* reducer, const winnow_scatter* scatter, int op) {
  return guarded([&] {
    winnow::AllReducer& given = expect_given(reducer, "reducer").reducer;
    const auto [bytes, type, id, shard, input, output] =
        winnow::comm::read(scatter, "a reduce-scatter");
    const winnow::ElementType elements = type_of(type, id);
    const auto ranks = static_cast<std::uint64_t>(given.transport().size());
    WINNOW_EXPECTS(shard <= UINT64_MAX / ranks, "shard is " + std::to_string(shard) +
                                                    ": a shard for each rank is more than memory "
                                                    "can have");
    given.reduce_scatter({input, ranks * shard, elements}, {output, shard, elements}, id,
                         op_of(op));
  });
}

int winnow_all_reduce_rows(winnow_reducer* reducer, const winnow_rows* mine, int op,
                           const std::uint64_t** rows, const void** values, std::uint64_t* count) {
  return guarded([&] {
    winnow::AllReducer& given = expect_given(reducer, "reducer").reducer;
    const auto [bytes, type, id, table_rows, width, own, numbers, elements] =
        winnow::comm::read(mine, "mine");
    const auto*& numbers_out = expect_given(rows, "rows");
    const auto*& values_out = expect_given(values, "values");
    std::uint64_t& count_out = expect_given(count, "count");
    const bool wraps = width > 0 && own > UINT64_MAX / width;  // which the AllReducer refuses
    const winnow::Rows sums = given.all_reduce_rows(
        {numbers, own}, {elements, wraps ? UINT64_MAX : own * width, type_of(type, id)},
        {id, table_rows, width}, op_of(op));
    numbers_out = sums.ids.data();
    values_out = sums.values.data();
    count_out = sums.ids.size();
  });
}

int winnow_all_reduce_async(winnow_reducer* reducer, const winnow_segment* bucket,
                            std::size_t segments, int op, winnow_work** work) {
  return guarded([&] {
    winnow_reducer& given = expect_given(reducer, "reducer");
    auto made = std::make_unique<winnow_work>();
    winnow_work*& out = expect_given(work, "work");
    made->work = given.reducer.all_reduce_async(bucket_of(given, bucket, segments), op_of(op));
    out = made.release();
  });
}

int winnow_work_wait(winnow_work* work) {
  return guarded([&] { expect_given(work, "work").work.wait(); });
}

int winnow_work_test(winnow_work* work, int* done) {
  return guarded([&] {
    int& answer = expect_given(done, "done");
    answer = expect_given(work, "work").work.test() ? 1 : 0;
  });
}

int winnow_work_on_complete(winnow_work* work, void (*callback)(void* self, int status),
                            void* self) {
  return guarded([&] {
    WINNOW_EXPECTS(callback != nullptr, "callback is NULL");
    expect_given(work, "work").work.on_complete([callback, self](const std::exception_ptr& error) {
      callback(self, guarded([&] {
                 if (error) std::rethrow_exception(error);
               }));
    });
  });
}

int winnow_work_detach(winnow_work* work) {
  return guarded([&] { expect_given(work, "work").work.detach(); });
}

void winnow_work_destroy(winnow_work* work) {
  delete work;
}

int winnow_reducer_synchronize(winnow_reducer* reducer) {
  return guarded([&] { expect_given(reducer, "reducer").reducer.synchronize(); });
}

int winnow_reducer_residual(winnow_reducer* reducer, std::uint64_t id, const float** residual,
                            std::uint64_t* count) {
  return guarded([&] {
    const winnow::AllReducer& given = expect_given(reducer, "reducer").reducer;
    auto& values = expect_given(residual, "residual");
    auto& number = expect_given(count, "count");
    const auto held = given.residual(id);
    values = held.empty() ? nullptr : held.data();
    number = held.size();
  });
}

int winnow_reducer_begin_step(winnow_reducer* reducer) {
  return guarded([&] { expect_given(reducer, "reducer").reducer.begin_step(); });
}

int winnow_reducer_discard_step(winnow_reducer* reducer) {
  return guarded([&] { expect_given(reducer, "reducer").reducer.discard_step(); });
}

int winnow_reducer_discard_step_of(winnow_reducer* reducer, const std::uint64_t* ids,
                                   std::uint64_t count) {
  return guarded([&] {
    winnow::AllReducer& given = expect_given(reducer, "reducer").reducer;
    given.discard_step(winnow::comm::expect_array(ids, count, "ids"));
  });
}

int winnow_reducer_scale_residuals(winnow_reducer* reducer, float factor) {
  return guarded([&] { expect_given(reducer, "reducer").reducer.scale_residuals(factor); });
}

int winnow_reducer_look_ahead(const winnow_reducer* reducer, std::uint64_t id, const float* weights,
                              float* ahead, std::uint64_t count, float share) {
  return guarded([&] {
    const winnow::AllReducer& given = expect_given(reducer, "reducer").reducer;
    given.look_ahead(id, winnow::comm::expect_array(weights, count, "weights"),
                     winnow::comm::expect_array(ahead, count, "ahead"), share);
  });
}

int winnow_reducer_look_ahead_share(const winnow_reducer* reducer, float momentum, int op,
                                    float* share) {
  return guarded([&] {
    const winnow::AllReducer& given = expect_given(reducer, "reducer").reducer;
    auto& made = expect_given(share, "share");
    made = given.look_ahead_share(momentum, op_of(op));
  });
}

int winnow_reducer_save(winnow_reducer* reducer, winnow_state** state) {
  return guarded([&] {
    auto& made = expect_given(state, "state");
    made = new winnow_state{expect_given(reducer, "reducer").reducer.save()};
  });
}

const void* winnow_state_data(const winnow_state* state) {
  return winnow::comm::answer_or<const void*>(
      nullptr, [&] { return expect_given(state, "state").bytes.data(); });
}

std::size_t winnow_state_bytes(const winnow_state* state) {
  return winnow::comm::answer_or<std::size_t>(
      0, [&] { return expect_given(state, "state").bytes.size(); });
}

void winnow_state_destroy(winnow_state* state) {
  delete state;
}

int winnow_reducer_load(winnow_reducer* reducer, const void* const* states,
                        const std::size_t* bytes, std::size_t count) {
  return guarded([&] {
    winnow::AllReducer& given = expect_given(reducer, "reducer").reducer;
    const auto of_states = winnow::comm::expect_array(states, count, "states");
    const auto of_bytes = winnow::comm::expect_array(bytes, count, "bytes");
    std::vector<std::span<const std::byte>> all;
    for (std::size_t i = 0; i < count; ++i) {
      const auto* const state = static_cast<const std::byte*>(of_states[i]);
      all.push_back(winnow::comm::expect_array(state, of_bytes[i], "one of states"));
    }
    given.load(all);
  });
}

int winnow_reducer_options(const winnow_reducer* reducer, char* text, std::size_t room,
                           std::size_t* bytes) {
  return guarded([&] {
    put(expect_given(reducer, "reducer").reducer.options().to_string(), text, room, bytes);
  });
}

int winnow_reducer_stats(const winnow_reducer* reducer, int stats, char* text, std::size_t room,
                         std::size_t* bytes) {
  return guarded([&] {
    const winnow::AllReducer& given = expect_given(reducer, "reducer").reducer;
    put(json_of(given, stats), text, room, bytes);
  });
}

}  // extern "C"
