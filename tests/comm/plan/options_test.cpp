// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <winnow/error.hpp>
#include <winnow/options.hpp>

#include "topology/link_model.hpp"

namespace winnow {
namespace {

std::string error_of(const std::string& text) {
  try {
    Options::parse(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TEST(Options, EveryKeyIsReadAndWritten) {
  const Options options = Options::parse(
      "compressor=topk:0.02 schedule=gather;links=inter=50us,1Gbit/s+pass=8GB/s trial_calls=7 "
      "op=sum decay=0.95 precondition=second_moment:0.99 min_bytes=0\texempt_1d=no "
      "exempt=*norm*,head max_part=4096 deadline=2.5 threads=3 residual_memory=pinned_host "
      "enable=off stats=2 debug=3");
  EXPECT_EQ(options.compressor, "topk:0.02");
  EXPECT_EQ(options.schedule, "gather");
  EXPECT_EQ(options.links, LinkModel::parse("inter=50us,1Gbit/s pass=8GB/s").to_string('+'));
  EXPECT_EQ(options.trial_calls, 7);
  EXPECT_EQ(options.op, ReduceOp::sum);
  EXPECT_EQ(options.decay, 0.95F);
  EXPECT_EQ(options.precondition, "second_moment:0.99:1e-08");
  EXPECT_EQ(options.min_bytes, 0U);
  EXPECT_FALSE(options.exempt_1d);
  EXPECT_EQ(options.exempt, (std::vector<std::string>{"*norm*", "head"}));
  EXPECT_EQ(options.max_part, 4096U);
  EXPECT_EQ(options.deadline, 2.5);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.residual_memory, ResidualMemory::pinned_host);
  EXPECT_FALSE(options.enable);
  EXPECT_EQ(options.stats, 2);
  EXPECT_EQ(options.debug, 3);
  EXPECT_EQ(Options::parse(options.to_string()).to_string(), options.to_string());
  EXPECT_NE(options.to_string(), Options().to_string());
}

TEST(Options, APresetIsOverriddenByWhatFollows) {
  const Options options = Options::parse("compressor=int8 preset=dgc compressor=topk:0.02");
  EXPECT_EQ(options.compressor, "topk:0.02");
  EXPECT_EQ(options.precondition, "momentum:0.9:masked");
  EXPECT_EQ(options.schedule, "gather");
  EXPECT_EQ(options.to_string().find("preset"), std::string::npos);
  EXPECT_NE(error_of("preset=dcg").find("dgc oktopk onebit"), std::string::npos);

  ::setenv("WINNOW_COMPRESSOR", "topk:0.5", 1);
  ::setenv("WINNOW_PRESET", "scalecom", 1);
  const Options from = Options::from_environment();
  ::unsetenv("WINNOW_COMPRESSOR");
  ::unsetenv("WINNOW_PRESET");
  EXPECT_EQ(from.compressor, "topk:0.5");
  EXPECT_EQ(from.schedule, "shared");
}

TEST(Options, EveryOperationHasAWord) {
  constexpr std::pair<const char*, ReduceOp> kWords[] = {{"sum", ReduceOp::sum},
                                                         {"average", ReduceOp::average},
                                                         {"min", ReduceOp::minimum},
                                                         {"max", ReduceOp::maximum},
                                                         {"product", ReduceOp::product}};
  for (const auto& [word, op] : kWords) {
    const std::string text = std::string("op=") + word;
    EXPECT_EQ(Options::parse(text).op, op);
    EXPECT_NE(Options{.op = op}.to_string().find(text), std::string::npos);
  }
}

TEST(Options, DefaultsSurviveTheirText) {
  EXPECT_EQ(Options::parse(Options().to_string()).to_string(), Options().to_string());
  EXPECT_EQ(Options::parse("").to_string(), Options().to_string());
  const Options blanks{.links = "inter=50us,1Gbit/s pass=8GB/s"};
  EXPECT_EQ(Options::parse(blanks.to_string()).to_string(), blanks.to_string());
}

TEST(Options, ErrorsNameTheNearestWord) {
  EXPECT_NE(error_of("compresor=none").find("did you mean 'compressor'"), std::string::npos);
  EXPECT_NE(error_of("compressor=topkk:0.1").find("did you mean 'topk'"), std::string::npos);
  EXPECT_NE(error_of("schedule=gater").find("did you mean 'gather'"), std::string::npos);
  EXPECT_NE(error_of("op=mean").find("sum, average, min"), std::string::npos);
  EXPECT_NE(error_of("topk:0.1").find("key=value"), std::string::npos);
  for (const char* wrong : {"compressor=topk",
                            "compressor=topk:0",
                            "compressor=topk:1.5",
                            "compressor=topk:nan",
                            "compressor=topk:0.1x",
                            "compressor=none:1",
                            "decay=2",
                            "decay=-0.1",
                            "decay=nan",
                            "precondition=second_moment",
                            "precondition=second_moment:",
                            "precondition=second_moment:1",
                            "precondition=second_moment:0",
                            "precondition=second_moment:0.9:0",
                            "precondition=second_moment:0.9:",
                            "precondition=second_moment:0.9:1e-8:1",
                            "precondition=first_moment:0.9",
                            "precondition=none:0.9",
                            "min_bytes=-1",
                            "min_bytes=4k",
                            "threads=-1",
                            "enable=maybe",
                            "links=fast",
                            "max_part=4294967296",
                            "deadline=-1",
                            "trial_calls=-1",
                            "residual_memory=managed",
                            "compressor=randomk",
                            "compressor=randomk:2",
                            "compressor=randomk:0.1,seeded",
                            "compressor=randomk:0.1,raw32",
                            "compressor=topk:0.1,seeded"}) {
    EXPECT_NE(error_of(wrong), "") << wrong;
  }
  for (const char* wrong : {"stats=3", "stats=-1", "stats=yes", "debug=4"}) {
    EXPECT_NE(error_of(wrong), "") << wrong;
  }
}

TEST(Options, ADensityHasOneName) {
  EXPECT_EQ(Options::parse("compressor=topk:0.0100").compressor, "topk:0.01");
  EXPECT_EQ(Options::parse("compressor=randomk:1e-2,int8").compressor, "randomk:0.01,int8");
}

TEST(Options, TheEnvironmentOverridesTheBase) {
  ::setenv("WINNOW_COMPRESSOR", "topk:0.5", 1);
  ::setenv("WINNOW_ENABLE", "0", 1);
  const Options options = Options::from_environment({.op = ReduceOp::sum});
  EXPECT_EQ(options.compressor, "topk:0.5");
  EXPECT_FALSE(options.enable);
  EXPECT_EQ(options.op, ReduceOp::sum);
  ::unsetenv("WINNOW_COMPRESSOR");
  ::unsetenv("WINNOW_ENABLE");

  ::setenv("WINNOW_COMPRESOR", "none", 1);
  try {
    Options::from_environment();
    ADD_FAILURE() << "an unknown variable was taken";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'WINNOW_COMPRESSOR'"),
              std::string::npos);
  }
  ::unsetenv("WINNOW_COMPRESOR");
}

TEST(Options, VariablesOfOthersAreLetPass) {
  const std::string before = Options::from_environment().to_string();
  for (const char* name : {"WINNOW_ROOT", "WINNOW_DIR", "WINNOW_HOME", "WINNOW_MPI_THREADS",
                           "WINNOW_NCCL_STATS", "WINNOW_TORCH_DEBUG", "WINNOW_"}) {
    ::setenv(name, "/opt/winnow", 1);
    EXPECT_EQ(Options::from_environment().to_string(), before) << name;
    ::unsetenv(name);
  }
  for (const char* name :
       {"WINNOW_THREAD", "WINNOW_LINK", "WINNOW_OPP", "WINNOW_SHEDULE", "WINNOW_MAXPART"}) {
    ::setenv(name, "1", 1);
    EXPECT_THROW(Options::from_environment(), UsageError) << name;
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace winnow
