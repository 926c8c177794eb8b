// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The lines of each level of Options::debug; each is one write.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "tests/harness/ranks.hpp"
#include "tests/harness/recorded_writes.hpp"
#include "tests/laws/reference.hpp"

namespace winnow::tests {
namespace {

/// Counts lines that contain `part`.
std::ptrdiff_t lines_with(const std::vector<std::string>& lines, std::string_view part) {
  return std::ranges::count_if(
      lines, [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

TEST(DebugLog, WritesTheLinesOfItsLevel) {
  for (const int ranks : rank_counts()) {
    for (const int level : {0, 1, 2, 3}) {
      const RecordedErrors errors;
      std::mutex mutex;
      std::vector<int> here;  // ranks of this process
      run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
        {
          const std::lock_guard lock(mutex);
          here.push_back(transport->rank());
        }
        AllReducer reducer(transport, {.schedule = "gather", .debug = level});
        TestBucket mixed({{1, 30000}, {2, 300, 1}});
        std::vector<float> small(10, 1.0F);
        for (int call = 0; call < 2; ++call) {
          mixed.fill(Kind::normal, transport->rank(), call);
          reducer.all_reduce(mixed.segments());
          const Segment segment{.elements = small, .id = 3, .name = "head"};
          reducer.all_reduce(std::span(&segment, 1));
        }
      });
      const auto lines = errors.writes();
      std::ptrdiff_t expected = 0;
      for (const int rank : here) {
        const bool speaks = level >= 3 || (level >= 1 && rank == 0);
        const std::string prefix = "winnow[" + std::to_string(rank) + "]: ";
        EXPECT_EQ(lines_with(lines, prefix + "bucket "), speaks ? 2 : 0);
        EXPECT_EQ(lines_with(lines, prefix + "call "), speaks && level >= 2 ? 4 : 0);
        if (speaks) expected += level >= 2 ? 6 : 2;
        if (!speaks) continue;
        EXPECT_EQ(lines_with(lines, prefix + "bucket head: 10 elements, 0 of them compressed; "
                                             "1 parts: dense; "),
                  1);
        EXPECT_EQ(lines_with(lines,
                             "30300 elements, 30000 of them compressed; 2 parts: "
                             "gather+dense of eliasfano,float32; "),
                  level >= 3 ? static_cast<std::ptrdiff_t>(here.size()) : 1);
      }
      EXPECT_EQ(static_cast<std::ptrdiff_t>(lines.size()), expected);
      for (const std::string& line : lines) {
        EXPECT_EQ(line.rfind("winnow[", 0), 0U) << line;
        EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
      }
    }
  }
}

// If the support decides nothing, calls send the bytes and codings that the plan states.
TEST(DebugLog, ThePlanIsWhatCallsDo) {
  for (const int ranks : rank_counts()) {
    for (const char* schedule : {"gather", "balanced", "dense"}) {
      const RecordedErrors errors;
      std::string bytes, coding;
      bool listens = false;
      run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
        AllReducer reducer(transport,
                           {.compressor = "topk:0.03,int8", .schedule = schedule, .debug = 1});
        std::vector<float> values(64000, 1.0F);
        reducer.all_reduce(values, 0);
        if (transport->rank() != 0) return;
        listens = true;
        bytes = std::to_string(reducer.last().wire_bytes) + " bytes a call";
        coding = reducer.last().coding;
      });
      if (!listens) continue;
      const auto lines = errors.writes();
      if (schedule != std::string_view("balanced")) {
        EXPECT_EQ(lines_with(lines, bytes), 1) << lines.front();
      }
      EXPECT_EQ(lines_with(lines, coding.empty() ? "dense; " : " of " + coding + "; "), 1)
          << lines.front();
    }
  }
}

TEST(DebugLog, SaysWhyNoCallIsPossible) {
  for (const int ranks : rank_counts()) {
    const RecordedErrors errors;
    std::string why;
    run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
      if (transport->size() == 1) return;
      AllReducer reducer(transport,
                         {.schedule = "gather", .min_bytes = 0, .deadline = 30, .debug = 1});
      std::vector<float> a(5000, 1.0F), b(5000, 2.0F);
      reducer.all_reduce(a, 1);
      reducer.all_reduce(b, 2);
      try {
        transport->rank() == 1 ? reducer.all_reduce(b, 2) : reducer.all_reduce(a, 1);
        ADD_FAILURE() << "calls in different order passed";
      } catch (const UsageError& error) {
        if (transport->rank() == 0) why = error.what();
      }
      EXPECT_THROW(reducer.all_reduce(a, 1), CommError);
    });
    std::ranges::replace(why, '\n', ' ');
    EXPECT_EQ(lines_with(errors.writes(), "winnow[0]: broken, no call is possible any more: "),
              why.empty() ? 0 : 1);
    EXPECT_EQ(lines_with(errors.writes(), why + "\n"), why.empty() ? 0 : 1);
  }
}

}  // namespace
}  // namespace winnow::tests
