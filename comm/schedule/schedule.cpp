// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "topology/nearest.hpp"
#include "topology/words.hpp"

namespace winnow::comm {

namespace {

constexpr std::array kSchedules{
    &kDense,          &kGather,           &kDoubling,         &kBalanced,      &kShared,
    &kTwoLevelGather, &kTwoLevelDoubling, &kTwoLevelBalanced, &kTwoLevelShared};

}  // namespace

std::span<const Schedule* const> schedules() {
  return kSchedules;
}

namespace {

/// Words that stand for several schedules.
constexpr std::string_view kAuto = "auto", kLeastBytes = "least_bytes", kTwoLevel = "two_level";

/// The names in MPI, NCCL and others, and the schedule here.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"ring", "dense"},
    {"tree", "dense"},
    {"nccl", "dense"},
    {"mpi", "dense"},
    {"gloo", "dense"},
    {"native", "dense"},
    {"allreduce", "dense"},
    {"all_reduce", "dense"},
    {"none", "dense"},
    {"off", "dense"},
    {"allgather", "gather"},
    {"all_gather", "gather"},
    {"recursive_doubling", "doubling"},
    {"butterfly", "doubling"},
    {"recursive_halving", "balanced"},
    {"halving_doubling", "balanced"},
    {"rabenseifner", "balanced"},
    {"reduce_scatter", "balanced"},
    {"reduce_scatter_allgather", "balanced"},
    {"alltoall", "balanced"},
    {"all_to_all", "balanced"},
    {"hierarchical", kTwoLevel},
    {"hierarchy", kTwoLevel},
    {"multi_level", kTwoLevel},
    {"2level", kTwoLevel},
    {"nodes", kTwoLevel},
    {"default", kAuto},
    {"automatic", kAuto},
    {"fastest", kAuto},
};

}  // namespace

const Schedule& find_schedule(std::string_view name) {
  std::vector<std::string_view> known = {kAuto, kLeastBytes, kTwoLevel};
  for (const Schedule* schedule : kSchedules) {
    if (schedule->name == name) return *schedule;
    known.push_back(schedule->name);
  }
  std::string word(name);
  std::ranges::replace(word, '-', '_');
  const auto elsewhere = std::ranges::find(kElsewhere, word, [](const auto& e) { return e.first; });
  const bool is_known = elsewhere != std::end(kElsewhere);
  std::string text = "unknown schedule '" + std::string(name) + "'; ";
  text += is_known ? "did you mean '" + std::string(elsewhere->second) + "'?" : advice(word, known);
  if (is_known && elsewhere->second == kDense.name) {
    text += " That is the transport's own allreduce, or Winnow's ring where it is faster";
  }
  fail_usage(text);
}

std::string schedule_word(std::string_view text) {
  std::string word = lower_case(without_blanks(text, ":"));
  (void)find_schedules(word);
  return word;
}

std::vector<const Schedule*> find_schedules(std::string_view name) {
  std::vector<const Schedule*> found;
  for (const Schedule* schedule : kSchedules) {
    if (schedule->has_own_support()) continue;
    if (name == kAuto || name == kLeastBytes || (name == kTwoLevel && schedule->inner != nullptr)) {
      found.push_back(schedule);
    }
  }
  if (found.empty()) found.push_back(&find_schedule(name));
  return found;
}

void share_out(compress::Part& part, const Schedule& schedule,
               const compress::Compressor& compressor, int ranks, int rank) {
  if (schedule.partitioned) {
    compress::share_out(part, compressor, static_cast<std::uint32_t>(ranks),
                        static_cast<std::uint32_t>(rank));
  } else {
    compress::share_out(part, compressor, 1, compress::Part::kNobody);
  }
  if (schedule.plan != nullptr) schedule.plan(part, compressor, ranks, rank);
}

}  // namespace winnow::comm
