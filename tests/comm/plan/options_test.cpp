// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <winnow/error.hpp>
#include <winnow/options.hpp>

#include "comm/plan/checked_options.hpp"
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
  EXPECT_NE(error_of("op=norm").find("sum, average, min"), std::string::npos);
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
                            "threads=-1",
                            "enable=maybe",
                            "links=fast",
                            "links=measured+pass=8GB/s",
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

/// What is written in other ways than Options::to_string writes it, and means this.
TEST(Options, OtherSpellingsAreTaken) {
  constexpr std::pair<const char*, const char*> kSpellings[] = {
      // Blanks and capitals.
      {" compressor = topk:0.01 \t\n op\t=\tsum ;; ", "compressor=topk:0.01 op=sum"},
      {"compressor=topk : 0.01 , int8 :block = 64 op=sum",
       "compressor=topk:0.01,int8:block=64 op=sum"},
      {"compressor = topk:0.01, int8\r\nschedule = two_level : gather",
       "compressor=topk:0.01,int8 schedule=two_level:gather"},
      {"compressor=blocktopk: 64 / 4096", "compressor=blocktopk:64/4096"},
      {"exempt= decay=0.5", "decay=0.5"},
      {"exempt = *norm* , head, decay = 0.5", "exempt=*norm*,head decay=0.5"},
      {"links= op=sum", "op=sum"},
      {"links= measured op=sum", "links=measured op=sum"},
      {"links = inter = 50us , 1Gbit/s + pass=8GB/s op=sum",
       "links=inter=50us,1Gbit/s+pass=8GB/s op=sum"},
      {"links=inter=50us,1Gbit/s pass=8GB/s ring=4MB op=sum",
       "links=inter=50us,1Gbit/s+pass=8GB/s+ring=4MB op=sum"},
      {"Compressor=TopK:0.01,INT8:Stochastic,EliasFano OP=SUM",
       "compressor=topk:0.01,int8:stochastic,eliasfano op=sum"},
      {"schedule=Balanced precondition= Second_Moment : 0.9 preset=DGC", "preset=dgc"},
      // Numbers.
      {"compressor=topk:1%", "compressor=topk:0.01"},
      {"compressor=topk:7%:sums=10%:warmup=+5", "compressor=topk:0.07:sums=0.1:warmup=5"},
      {"compressor=randomk:0.1%", "compressor=randomk:0.001"},
      {"compressor=topk:1 % op=sum", "compressor=topk:0.01 op=sum"},
      {"compressor=topk:1 %, int8", "compressor=topk:0.01,int8"},
      {"compressor=topk:1e-2", "compressor=topk:0.01"},
      {"compressor=topk:.01", "compressor=topk:0.01"},
      {"compressor=topk:+1.", "compressor=topk:1"},
      {"compressor=threshold:+1E-3", "compressor=threshold:0.001"},
      {"decay=+1 deadline=1e1 seed=+7", "decay=1 deadline=10 seed=7"},
      // Bytes.
      {"min_bytes=64K", "min_bytes=65536"},
      {"min_bytes=64k", "min_bytes=65536"},
      {"min_bytes=64KiB", "min_bytes=65536"},
      {"min_bytes=64kB", "min_bytes=64000"},
      {"min_bytes=2M", "min_bytes=2097152"},
      {"min_bytes=1.5MiB", "min_bytes=1572864"},
      {"min_bytes=1G", "min_bytes=1073741824"},
      {"min_bytes=1GB", "min_bytes=1000000000"},
      {"min_bytes=1TiB", "min_bytes=1099511627776"},
      {"min_bytes=100B", "min_bytes=100"},
      {"min_bytes=64 KiB op=sum", "min_bytes=65536 op=sum"},
      {"min_bytes = 1.5 mb", "min_bytes=1500000"},
      {"min_bytes=64KB", "min_bytes=64000"},
      {"min_bytes=18446744073709551615", "min_bytes=18446744073709551615"},
      {"links=inter=50us,1Gbit/s+ring=4KiB", "links=inter=50us,1Gbit/s+ring=4096B"},
      // Words.
      {"op=mean", "op=average"},
      {"op=AVG", "op=average"},
      {"op=prod", "op=product"},
      {"op=Minimum", "op=min"},
      {"enable=On exempt_1d=FALSE", "enable=1 exempt_1d=0"},
      {"enable=no exempt_1d=Yes", "enable=0 exempt_1d=1"},
  };
  for (const auto& [given, meant] : kSpellings) {
    EXPECT_EQ(Options::parse(given).to_string(), Options::parse(meant).to_string()) << given;
  }
}

/// What is wrong, and the text that helps.
TEST(Options, ErrorsSayWhatIsProbablyMeant) {
  constexpr std::pair<const char*, const char*> kHints[] = {
      {"compressor=topk:0.01:int8", "did you mean 'topk:0.01,int8'?"},
      {"compressor=topk:0.01+int4:stochastic", "'topk:0.01,int4:stochastic'"},
      {"compressor=topk=0.01", "'topk:0.01'"},
      {"compressor=topk(0.01)", "'topk:0.01'"},
      {"compressor=topk0.01", "'topk:0.01'"},
      {"compressor=topk:0,01", "'topk:0.01'"},
      {"compressor=", "the compressor is empty: write topk:0.01"},
      {"compressor=topk", "topk needs a density"},
      {"compressor=randomk:", "randomk needs a density"},
      {"compressor=0.01", "'topk:0.01'"},
      {"compressor=1%", "'topk:0.01'"},
      {"compressor=1 %", "'topk:0.01'"},
      {"compressor=k=0.01", "'topk:0.01'"},
      {"compressor=topk:density=0.01", "'topk:0.01'"},
      {"compressor=topk,0.01", "'topk:0.01'"},
      {"compressor=k=5", "topk:0.01 or topk:1%"},
      {"compressor=5", "topk:0.01 or topk:1%"},
      {"compressor=topk:k=5", "topk:0.01 or topk:1%"},
      {"compressor=topk:5", "topk:0.01 or topk:1%"},
      {"k=5", "write compressor=topk:DENSITY, the share of elements that travel, above 0"},
      {"topk=1%", "write compressor=topk:1%"},
      {"randomk=0.1", "write compressor=randomk:0.1"},
      {"links=pass=1e308GB/s", "\"1e308GB/s\" is too large a bandwidth"},
      {"compressor=dgc", "write preset=dgc"},
      {"compressor=SparseLoCo", "write preset=sparseloco"},
      {"compressor=top-k:0.01", "'topk'"},
      {"compressor=signsgd", "'sign'"},
      {"compressor=fp32", "'float32'"},
      {"compressor=randk:0.01", "'randomk'"},
      {"compressor=topk:inf", "topk:0.01 or topk:1%"},
      {"compressor=topk:0x10", "topk:0.01 or topk:1%"},
      {"compressor=topk:101%", "topk:0.01 or topk:1%"},
      {"compressor=threshold:nan", "0 or more"},
      {"schedule=ring", "'dense'? That is the transport's own allreduce"},
      {"schedule=Tree", "'dense'"},
      {"schedule=recursive_doubling", "'doubling'"},
      {"schedule=rabenseifner", "'balanced'"},
      {"schedule=hierarchical", "'two_level'"},
      {"schedule=two-levels", "'two_level'"},
      {"schedule=nccl", "'dense'"},
      {"schedule=allgather", "'gather'"},
      {"density=0.01", "write compressor=topk:0.01"},
      {"sparsity=0.99", "1 - sparsity"},
      {"timeout=30", "write deadline=30"},
      {"op=add", "'op=sum'"},
      {"op=MPI_SUM", "'op=sum'"},
      {"op=averge", "'op=average'"},
      {"checksum=on", "'checksum=all'"},
      {"residual_memory=cpu", "'residual_memory=pinned_host'"},
      {"enable=enabled", "'enable=1'"},
      {"min_bytes=64 KiBs", "not 'KiBs'"},
      {"compressor=topk:0.01 int8", "'compressor=topk:0.01,int8'"},
      {"compressor=topk:0.01 op=sum int8", "'compressor=int8'"},
      {"compressor=topk 0.01", "'compressor=topk:0.01'"},
      {"compressor=topk:0.01,int8 eliasfano", "'compressor=topk:0.01,int8,eliasfano'"},
      {"compressor=topk:0.01,,int8", "did you mean 'topk:0.01,int8'?"},
      {"compressor=,int8", "did you mean 'int8'?"},
      {"compressor=topk:0.01,elias", "did you mean 'eliasfano'?"},
      {"compressor=zzzzzzzz", "known are none, topk, "},
      {"schedule=zzzzzzzz", "known are auto, "},
      {"unknown=1", "known are preset, compressor, schedule, links, "},
      {"links=fast", "inter=50us,100Mbit/s+intra=1us,10GB/s+pass=10GB/s"},
      {"min_bytes=64Q", "64K or 64KiB"},
      {"min_bytes=1,000", "'min_bytes=1000'"},
      {"min_bytes=0.5", "whole number of bytes"},
      {"min_bytes=-1", "whole number of bytes"},
      {"min_bytes=99999999999T", "whole number of bytes"},
      {"threads=1_000", "'threads=1000'"},
      {"threads=0x10", "a number of threads"},
      {"decay=inf", "a number from 0 to 1"},
      {"seed=1e3", "a whole number"},
      {"topk:0.01", "'compressor=topk:0.01'"},
      {"dgc", "'preset=dgc'"},
      {"balanced", "'schedule=balanced'"},
      {"compressor:topk:0.01", "'compressor=topk:0.01'"},
      {"compressor topk:0.01", "'compressor=VALUE'"},
      {"min-bytes=5", "'min_bytes'"},
      {"densty=0.01", "write compressor=topk:0.01"},
      {"momentun=0.9", "write precondition=momentum:0.9"},
      {"dacy=1", "known are preset, "},
      {"exempt=a, opp=sum", "not 'opp=sum'"},
  };
  for (const auto& [given, hint] : kHints) {
    EXPECT_NE(error_of(given).find(hint), std::string::npos) << given << ": " << error_of(given);
  }
}

// No value is suggested that has nothing of what was written.
TEST(Options, NothingIsSuggestedThatIsNotNear) {
  for (const char* wrong : {"exempt_1d=2", "enable=maybe", "seed=1,2", "threads=1,00", "unknown=1",
                            "op=zzzzz", "compressor=zzzzzzzz", "schedule=zzzzzzzz"}) {
    EXPECT_EQ(error_of(wrong).find("did you mean"), std::string::npos) << error_of(wrong);
  }
}

/// A field of Options is one option, whatever stands in it.
TEST(Options, AFieldIsReadLikeItsText) {
  EXPECT_EQ(comm::checked({.compressor = " TopK : 1% ", .schedule = "Gather"}).to_string(),
            Options::parse("compressor=topk:0.01 schedule=gather").to_string());
  const auto refused = [](const Options& options) {
    EXPECT_THROW(comm::checked(options), UsageError) << options.compressor;
  };
  refused({.compressor = "topk:0.01 op=sum"});
  refused({.compressor = "topk:0.01;op=sum"});
  refused({.decay = std::numeric_limits<float>::quiet_NaN()});
  refused({.deadline = std::numeric_limits<double>::infinity()});
  refused({.exempt = {"a b"}});
  refused({.exempt = {"op=sum"}});
  refused({.exempt = {""}});
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

TEST(Options, VariablesAreReadLikeOptions) {
  const auto error_with = [](const char* name, const char* value) {
    ::setenv(name, value, 1);
    std::string error;
    try {
      Options::from_environment();
    } catch (const UsageError& caught) {
      error = caught.what();
    }
    ::unsetenv(name);
    return error;
  };
  ::setenv("WINNOW_COMPRESSOR", " TopK : 1% , int8\n", 1);
  ::setenv("WINNOW_MIN_BYTES", " 64 KiB ", 1);
  ::setenv("WINNOW_OP", "mean", 1);
  const Options options = Options::from_environment({.op = ReduceOp::sum});
  for (const char* name : {"WINNOW_COMPRESSOR", "WINNOW_MIN_BYTES", "WINNOW_OP"}) ::unsetenv(name);
  EXPECT_EQ(options.to_string(),
            Options::parse("compressor=topk:0.01,int8 min_bytes=65536").to_string());
  EXPECT_NE(error_with("WINNOW_MIN_BYTES", "much").find("WINNOW_MIN_BYTES: option min_bytes takes"),
            std::string::npos);
  EXPECT_NE(error_with("WINNOW_DENSITY", "0.01").find("write the option compressor=topk:0.01"),
            std::string::npos);
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
