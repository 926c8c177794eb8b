// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The cases whose bits are pinned.
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "tests/harness/schedules.hpp"
#include "tests/laws/bits_case.hpp"

namespace winnow::tests {
namespace {

using Parameters = std::vector<BitsParameter>;

// Sizes around a unit, and every kind of values. The second parameter travels dense.
const Parameters kMixed = {
    {7, 1000, Values::bell}, {2, 130, Values::bell, 1}, {3, 1, Values::bell},
    {12, 63, Values::tied},  {5, 64, Values::heavy},    {9, 0, Values::zero},
    {8, 65, Values::sparse}, {11, 3001, Values::heavy}, {4, 300, Values::tied},
    {6, 500, Values::tiny},  {10, 129, Values::zero}};
const Parameters kSparse = {{1, 2049, Values::sparse},
                            {3, 1, Values::sparse},
                            {2, 65, Values::sparse},
                            {4, 3001, Values::sparse}};
// Several tiles and, if there are threads, several of each.
const Parameters kLong = {
    {1, 20011, Values::heavy}, {2, 70, Values::bell}, {3, 9000, Values::tied}};

constexpr std::array kSelections{
    "none",     "topk:0.01", "topk:0.1,raw32", "topk:0.1,eliasfano", "topk:0.1,bitmap",
    "topk:0.6", "topk:0.99", "topk:1"};
constexpr std::array kValueCodings{"bf16",
                                   "bf16:stochastic",
                                   "fp16",
                                   "fp16:stochastic",
                                   "int8",
                                   "int8:block=64:stochastic",
                                   "int4",
                                   "int4:stochastic",
                                   "int4:block=64:stochastic",
                                   "sign",
                                   "sign:block=64"};
constexpr std::array kThresholds{"threshold",
                                 "threshold:0.5",
                                 "threshold:1,raw32",
                                 "threshold:1,eliasfano",
                                 "threshold:0.25,bitmap",
                                 "threshold:1,bf16:stochastic",
                                 "threshold:1,fp16",
                                 "threshold:0.5,int8",
                                 "threshold:0.5,int4:block=64:stochastic",
                                 "threshold:1,int4:stochastic"};

constexpr std::array kDrawn{"randomk:0.01", "randomk:0.3", "randomk:0.1,int8:stochastic",
                            "randomk:0.3,bf16", "randomk:0.1,sign"};

const std::vector<std::string> kInner = inner_schedule_names();

/// Makes cases from the names of their differences.
class Cases {
 public:
  std::vector<BitsCase> take() { return std::move(cases_); }

  /// Returns the last case, to be changed.
  BitsCase& add(std::string_view compressor, std::string_view schedule, std::string_view topology,
                std::string_view change = {}) {
    std::string name(compressor);
    name.append("@").append(schedule).append("/").append(topology).append(change);
    cases_.push_back({.name = std::move(name),
                      .options = {.compressor = std::string(compressor),
                                  .schedule = std::string(schedule),
                                  .links = "pass=10GB/s",  // not measured
                                  .trial_calls = 0,
                                  .min_bytes = 0,
                                  .seed = 12345678901234},
                      .topology = Topology::parse(topology),
                      .parameters = kMixed});
    return cases_.back();
  }

  /// A compressor under every schedule that takes it, at several numbers of ranks.
  void add_schedules(std::string_view compressor) {
    for (const std::string_view inner : kInner) {
      if (compressor.starts_with("threshold") && inner == "shared") continue;
      if (compressor.ends_with("mean") && inner != "gather" && inner != "doubling") continue;
      for (const char* ranks : {"3", "4"}) add(compressor, inner, ranks);
      for (const char* nodes : {"2x2", "3,1,2"}) add(compressor, two_levels(inner), nodes);
    }
  }

  /// A change to a few compressors under every schedule.
  template <class Change>
  void add_changed(std::string_view word, std::span<const char* const> compressors,
                   const Change& change) {
    for (const std::string_view compressor : compressors) {
      for (const std::string_view inner : kInner) {
        if (compressor.starts_with("threshold") && inner == "shared") continue;
        change(add(compressor, inner, "3", word));
        change(add(compressor, two_levels(inner), "2,1", word));
      }
    }
  }

 private:
  static std::string two_levels(std::string_view inner) {
    return std::string("two_level:").append(inner);
  }

  std::vector<BitsCase> cases_;
};

void add_compressors(Cases& cases) {
  for (const char* compressor : kSelections) cases.add_schedules(compressor);
  for (const std::string value : kValueCodings) {
    cases.add_schedules(value);
    cases.add_schedules("topk:0.1," + value);
  }
  cases.add_schedules("topk:0.99,int8:stochastic");
  cases.add_schedules("int4:block=65536");
  cases.add_schedules("int2");
  cases.add_schedules("topk:0.1,fp8:stochastic");
  cases.add_schedules("topk:0.1,mean");
  for (const char* compressor : kThresholds) cases.add_schedules(compressor);
  for (const char* compressor : kDrawn) cases.add_schedules(compressor);
}

/// Other numbers of ranks: one, two, two guests of doubling, and nodes that hold all ranks or none.
void add_topologies(Cases& cases) {
  for (const char* compressor : {"topk:0.1", "int8:stochastic"}) {
    for (const std::string& inner : kInner) {
      for (const char* ranks : {"1", "2", "7"}) cases.add(compressor, inner, ranks);
      for (const char* nodes : {"3", "3x1", "2,3"})
        cases.add(compressor, "two_level:" + inner, nodes);
    }
  }
}

void add_dense(Cases& cases) {
  for (const char* compressor : {"none", "topk:0.1"}) {
    for (const char* ranks : {"3", "4"}) cases.add(compressor, "dense", ranks);
  }
  cases.add("none", "dense", "3", "+bf16").type = ElementType::bf16;
  cases.add("none", "dense", "3", "+fp16").type = ElementType::fp16;
  cases.add("none", "dense", "3", "+parts").options.max_part = 1024;
  cases.add("none", "dense", "3", "+nan").event = Event::nan;
  for (const auto& [word, op] :
       {std::pair{"+sum", ReduceOp::sum}, std::pair{"+min", ReduceOp::minimum},
        std::pair{"+max", ReduceOp::maximum}, std::pair{"+product", ReduceOp::product}}) {
    cases.add("none", "dense", "3", word).options.op = op;
  }
}

void add_changes(Cases& cases) {
  constexpr std::array kFew{"topk:0.1", "topk:0.1,int8:stochastic", "int4", "threshold:1",
                            "randomk:0.1,int8:stochastic"};
  constexpr std::array kThreshold0{"threshold", "threshold,int8"};
  cases.add_changed("+sparse", kFew, [](BitsCase& c) { c.parameters = kSparse; });
  cases.add_changed("+sparse", kThreshold0, [](BitsCase& c) { c.parameters = kSparse; });
  cases.add_changed("+parts", kFew, [](BitsCase& c) { c.options.max_part = 1024; });
  cases.add_changed("+decay", kFew, [](BitsCase& c) { c.options.decay = 0.9F; });
  cases.add_changed("+sum", kFew, [](BitsCase& c) { c.options.op = ReduceOp::sum; });
  cases.add_changed("+bf16", kFew, [](BitsCase& c) { c.type = ElementType::bf16; });
  cases.add_changed("+fp16", kFew, [](BitsCase& c) { c.type = ElementType::fp16; });
  cases.add_changed("+nan", kFew, [](BitsCase& c) { c.event = Event::nan; });
  cases.add_changed("+infinity", kFew, [](BitsCase& c) { c.event = Event::infinity; });
  cases.add_changed("+nan+parts", kFew, [](BitsCase& c) {
    c.event = Event::nan;
    c.options.max_part = 1024;
  });
  const auto overflow = [](BitsCase& c) {
    c.event = Event::overflow;
    c.options.op = ReduceOp::sum;
  };
  cases.add_changed("+overflow", kFew, overflow);
  cases.add_changed("+overflow+fp16", kFew, [&](BitsCase& c) {
    overflow(c);
    c.type = ElementType::fp16;
  });
  cases.add_changed("+input", kFew, [](BitsCase& c) { c.out_of_place = true; });
  cases.add_changed("+long", kFew, [](BitsCase& c) { c.parameters = kLong; });
}

}  // namespace

const std::vector<BitsCase>& bits_cases() {
  static const std::vector<BitsCase> kCases = [] {
    Cases cases;
    add_compressors(cases);
    add_topologies(cases);
    add_dense(cases);
    add_changes(cases);
    return cases.take();
  }();
  return kCases;
}

}  // namespace winnow::tests
