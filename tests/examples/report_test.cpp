// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/report.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "train/format.hpp"
#include "train/plot.hpp"

namespace train {
namespace {

Report small_report() {
  const auto run = [](const std::string& compressor, double held_out, double bytes) {
    return Run{.compressor = compressor,
               .schedule = "gather",
               .curve = {{.step = 5,
                          .seconds = 1.5,
                          .training_loss = 2,
                          .held_out_loss = held_out,
                          .wire_bytes = 1234567}},
               .wire_bytes_per_step = bytes,
               .dense_wire_bytes_per_step = 4000};
  };
  Report report{.source = "a \"quoted\"\n\\path", .runs = {}};
  report.runs = {run("none", 2.0, 4000), run("topk:0.01,int4", 2.5, 100)};
  return report;
}

TEST(Report, CsvQuotesCompressors) {
  std::ostringstream out;
  write_csv(out, small_report());
  EXPECT_EQ(out.str(),
            "compressor,schedule,step,seconds,training_loss,held_out_loss,bytes_sent,seed\n"
            "\"none\",gather,5,1.5,2,2,1234567,1\n"
            "\"topk:0.01,int4\",gather,5,1.5,2,2.5,1234567,1\n");
}

TEST(Report, JsonEscapesAndHasNoNan) {
  Report report = small_report();
  report.runs.erase(report.runs.begin());  // without a dense run there is no difference to it
  std::ostringstream out;
  write_json(out, report);
  EXPECT_NE(out.str().find("\"text_source\": \"a \\\"quoted\\\"\\u000a\\\\path\""),
            std::string::npos)
      << out.str();
  EXPECT_NE(out.str().find(R"("held_out_difference_to_dense": null)"), std::string::npos);
  EXPECT_NE(out.str().find(R"("dense_to_wire_bytes": 40)"), std::string::npos);
}

TEST(Report, TableHasARowForEachRun) {
  std::ostringstream out;
  write_table(out, small_report());
  EXPECT_NE(out.str().find("+25.00 %"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("40.0x"), std::string::npos) << out.str();
}

// Differences are to the dense run of the same seed: +20 % and +30 %, though the means differ by
// 25.1 %.
TEST(Report, TellsMeansAndDeviationsOverSeeds) {
  Report report = small_report();
  report.seeds = 2;
  report.runs[1].curve.back().held_out_loss = 2.4;
  report.runs.push_back(report.runs[0]);
  report.runs.push_back(report.runs[1]);
  for (std::size_t i : {2U, 3U}) report.runs[i].seed = 2;
  report.runs[2].curve.back().held_out_loss = 2.1;
  report.runs[3].curve.back().held_out_loss = 2.73;
  std::ostringstream table, json;
  write_table(table, report);
  EXPECT_NE(table.str().find("seeds 1 to 2\n"), std::string::npos) << table.str();
  EXPECT_NE(table.str().find("2.0500 +-0.0707"), std::string::npos);
  EXPECT_NE(table.str().find("2.5650 +-0.2333"), std::string::npos);
  EXPECT_NE(table.str().find("+25.00 +-7.07 %"), std::string::npos);
  EXPECT_EQ(table.str().find("none", table.str().find("none  ") + 1),
            table.str().find("`none`") + 1)
      << "one row for both seeds";
  write_json(json, report);
  EXPECT_NE(json.str().find("\"held_out_difference_deviation\": 0.0707"), std::string::npos)
      << json.str();
  EXPECT_EQ(report.first_seed().size(), 2U);
}

/// Two dense runs, the slower of which ends with the higher loss; one run that reaches it sooner,
/// and one that never does.
Report race_report() {
  const auto run = [](const char* compressor, const char* schedule, double seconds,
                      const std::vector<double>& losses) {
    Run result{.compressor = compressor, .schedule = schedule};
    for (const double loss : losses) {
      const auto points = static_cast<double>(result.curve.size() + 1);
      result.curve.push_back({.step = 10 * (result.curve.size() + 1),
                              .seconds = seconds * points,
                              .held_out_loss = loss,
                              .wire_bytes = 1000 * (result.curve.size() + 1)});
    }
    result.time = {.step = 4, .allreduce = 3};
    return result;
  };
  Report report{.source = "text", .runs = {}};
  report.runs = {run("none", "dense", 40, {3, 2.5, 2.25}),
                 run("none", "dense_ring", 30, {3, 2.25, 2}),
                 run("topk:0.01", "balanced", 2, {3, 2.75, 2.25, 2.5, 1}),
                 run("sign", "gather", 1, {3, std::nan(""), 2.26})};
  report.target = dense_loss(report);
  return report;
}

TEST(Report, FindsWhenARunFirstHasALoss) {
  const Report report = race_report();
  EXPECT_EQ(report.target, 2.25);
  EXPECT_EQ(first_at(report.runs[0], 2.25), &report.runs[0].curve[2]);
  EXPECT_EQ(first_at(report.runs[1], 2.25), &report.runs[1].curve[1]);
  EXPECT_EQ(first_at(report.runs[2], 2.25), &report.runs[2].curve[2]);
  EXPECT_EQ(first_at(report.runs[3], 2.25), nullptr);
  EXPECT_TRUE(std::isnan(dense_loss({.source = "text", .runs = {}})));
}

TEST(Report, TableTellsWhoHasTheTargetFirst) {
  std::ostringstream out;
  write_table(out, race_report());
  const std::string text = out.str().substr(out.str().find("Held-out loss"));
  EXPECT_TRUE(text.starts_with(
      "Held-out loss 2.2500 was first measured after\n\n"
      "compressor  schedule        steps  seconds  speed-up  bytes  in allreduce\n"
      "none        dense              30   120.00      0.5x  3,000          75 %\n"
      "none        dense_ring         20    60.00      1.0x  2,000          75 %\n"
      "topk:0.01   balanced           30     6.00     10.0x  3,000          75 %\n"
      "sign        gather      not in 30        -         -      -          75 %\n"))
      << text;
}

TEST(Report, JsonTellsWhoHasTheTargetFirst) {
  std::ostringstream out;
  write_json(out, race_report());
  EXPECT_NE(out.str().find(R"("target_held_out_loss": 2.25)"), std::string::npos);
  EXPECT_NE(out.str().find("\"steps_to_target\": 30,\n      \"seconds_to_target\": 6,"),
            std::string::npos)
      << out.str();
  EXPECT_NE(out.str().find("\"steps_to_target\": null,\n      \"seconds_to_target\": null,"),
            std::string::npos);
}

TEST(Plot, WithATargetItIsLossAgainstSeconds) {
  Report report = race_report();
  const std::string timed = plot_script("plot.png", report);
  EXPECT_NE(timed.find("\n30 2.25 0.003 6\n"), std::string::npos) << timed;
  EXPECT_NE(timed.find("$run2 using 4:2 with lines linetype 3 title 'topk:0.01 by balanced'"),
            std::string::npos);
  EXPECT_NE(timed.find(", 2.25 with lines"), std::string::npos);
  EXPECT_NE(timed.find("seconds of training"), std::string::npos);
  report.target.reset();
  const std::string sent = plot_script("plot.png", report);
  EXPECT_NE(sent.find("$run2 using 3:2"), std::string::npos);
  EXPECT_EQ(sent.find("using 4:2"), std::string::npos);
  EXPECT_EQ(sent.find("seconds of training"), std::string::npos);
}

TEST(Report, GroupsDigitsByThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
}

}  // namespace
}  // namespace train
