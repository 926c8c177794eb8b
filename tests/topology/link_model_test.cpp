// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/link_model.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <winnow/error.hpp>

namespace winnow {
namespace {

std::string refusal(std::string_view text) {
  try {
    (void)LinkModel::parse(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(LinkModel, ReadsLatencyBandwidthAndPasses) {
  const LinkModel model = LinkModel::parse("inter=50us,100Mbit/s intra=1us,10GB/s  pass=4GB/s");
  EXPECT_EQ(model.inter, (Link{50e-6, 12.5e6, Link::Port::per_node}));
  EXPECT_EQ(model.intra, (Link{1e-6, 10e9, Link::Port::per_rank}));
  EXPECT_EQ(model.pass, 4e9);
  EXPECT_EQ(model.gamma(), 0.25e-9);
  EXPECT_EQ(model.inter.seconds(125), 1e-5);
}

TEST(LinkModel, WhatIsNotNamedKeepsItsDefault) {
  const LinkModel defaults;
  EXPECT_EQ(LinkModel::parse(""), defaults);
  const LinkModel model = LinkModel::parse("inter=3s,5B/s,per-rank");
  EXPECT_EQ(model.inter, (Link{3, 5, Link::Port::per_rank}));
  EXPECT_EQ(model.intra, defaults.intra);
  EXPECT_EQ(model.pass, defaults.pass);
  EXPECT_EQ(defaults.inter.port, Link::Port::per_node);
  EXPECT_EQ(defaults.intra.port, Link::Port::per_rank);
}

TEST(LinkModel, KnowsItsUnits) {
  const auto alpha = [](const std::string& time) {
    return LinkModel::parse("intra=" + time + ",1B/s").intra.alpha;
  };
  EXPECT_EQ(alpha("0s"), 0);
  EXPECT_EQ(alpha("2s"), 2);
  EXPECT_EQ(alpha("2.5ms"), 2.5e-3);
  EXPECT_EQ(alpha("3us"), 3e-6);
  EXPECT_EQ(alpha("700ns"), 700e-9);
  const auto beta = [](const std::string& rate) {
    return LinkModel::parse("intra=1s," + rate).intra.beta;
  };
  EXPECT_EQ(beta("4bit/s"), 0.5);
  EXPECT_EQ(beta("3B/s"), 3);
  EXPECT_EQ(beta("8kbit/s"), 1000);
  EXPECT_EQ(beta("2kB/s"), 2000);
  EXPECT_EQ(beta("1.5MB/s"), 1.5e6);
  EXPECT_EQ(beta("1Gbit/s"), 125e6);
  EXPECT_EQ(beta("1e3MB/s"), 1e9);
  EXPECT_EQ(beta("1Tbit/s"), 125e9);
  EXPECT_EQ(beta("1TB/s"), 1e12);
}

TEST(LinkModel, SaysFromWhichSizeOnTheRingServes) {
  EXPECT_EQ(LinkModel::parse("pass=1GB/s").ring, LinkModel::kNever);
  EXPECT_EQ(LinkModel::parse("ring=0B").ring, 0U);
  EXPECT_EQ(LinkModel::parse("pass=1GB/s+ring=1.5kB").ring, 1500U);
  EXPECT_EQ(LinkModel().to_string().find("ring"), std::string::npos);
  const LinkModel model{.ring = std::uint64_t{1} << 22};
  EXPECT_EQ(model.to_string('+'),
            "inter=20us,1.25GB/s,per-node+intra=1us,10GB/s,per-rank+pass=10GB/s+ring=4.194304MB");
  for (const std::uint64_t bytes :
       {0U, 1U, 999U, 1000U, 1U << 20, 1U << 22, 1U << 24, 4294967295U}) {
    const LinkModel ring{.ring = bytes};
    EXPECT_EQ(LinkModel::parse(ring.to_string('+')), ring) << ring.to_string();
  }
}

TEST(LinkModel, ToStringIsReadBack) {
  EXPECT_EQ(LinkModel::parse("inter=50us,100Mbit/s intra=0s,10GB/s").to_string(),
            "inter=50us,12.5MB/s,per-node intra=0s,10GB/s,per-rank pass=10GB/s");
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> any(0, 8);
  for (int n = 0; n < 2000; ++n) {
    LinkModel model;
    model.inter = {any(random) * 1e-6, any(random) * 1e6, Link::Port::per_rank};
    model.intra = {any(random) * 1e-6, any(random) * 1e9, Link::Port::per_node};
    model.pass = any(random) * 1e9;
    EXPECT_EQ(LinkModel::parse(model.to_string()), model) << model.to_string();
  }
}

TEST(LinkModel, RefusesWhatItCannotReadAndSaysWhatWouldBeRight) {
  struct Case {
    const char* text;
    const char* names;
  };
  for (const Case& c : {Case{"iner=1us,1GB/s", "\"iner\""},
                        Case{"inter", "latency and a bandwidth"},
                        Case{"inter=", "latency and a bandwidth"},
                        Case{"inter=1us", "latency and a bandwidth"},
                        Case{"inter=1us,1GB/s,per-node,4", "latency and a bandwidth"},
                        Case{"inter=1us,1GB/s,both", "\"both\""},
                        Case{"inter=1,1GB/s", "no unit"},
                        Case{"inter=1us,1GB", "\"GB\""},
                        Case{"inter=1us,1", "no unit"},
                        Case{"inter=fast,1GB/s", "\"fast\" is not a latency"},
                        Case{"inter=-1us,1GB/s", "\"-1us\" is not a latency"},
                        Case{"inter=1us,0GB/s", "above 0"},
                        Case{"inter=1us,-1GB/s", "not a bandwidth"},
                        Case{"inter=nanus,1GB/s", "not a latency"},
                        Case{"inter=infs,1GB/s", "not a latency"},
                        Case{"inter=1us,1Gbps", "\"Gbps\""},
                        Case{"inter=1GB/s,1us", "\"GB/s\""},
                        Case{"pass=10", "no unit"},
                        Case{"pass=0B/s", "above 0"},
                        Case{"pass=1B/s pass=1B/s", "twice"},
                        Case{"ring=4", "no unit"},
                        Case{"ring=-4MB", "not a size"},
                        Case{"ring=0.5B", "whole number of bytes"},
                        Case{"ring=1e9GB", "whole number of bytes"},
                        Case{"inter=1us, 1GB/s", "\"\""},
                        Case{"inter=1us,1e400GB/s", "not a bandwidth"}}) {
    const std::string message = refusal(c.text);
    EXPECT_NE(message.find(c.text), std::string::npos) << c.text << " -> " << message;
    EXPECT_NE(message.find(c.names), std::string::npos) << c.text << " -> " << message;
    EXPECT_NE(message.find("inter=50us,100Mbit/s"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace winnow
