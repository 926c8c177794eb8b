// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>
#include <winnow/exec.hpp>
#include <winnow/options.hpp>
#include <winnow/topology.hpp>
#include <winnow/transport.hpp>

#include "comm/call/context.hpp"
#include "comm/plan/agreement.hpp"
#include "comm/plan/planner.hpp"
#include "comm/schedule/shards.hpp"
#include "compress/compressor.hpp"
#include "compress/message.hpp"
#include "compress/precondition.hpp"

namespace winnow::comm {

/// The properties of an AllReducer that no call changes: where it works, its options, and what its
/// ranks know of each other.
struct Setup {
  static constexpr double kPatience = 600;  ///< seconds, without Options::deadline

  /// Throws what Context throws. The ranks have not met yet.
  Setup(std::shared_ptr<Transport> transport, const Exec& where);

  /// Checks the options and compares them with all ranks, which must all call this at the same
  /// place. `refusal`: see AllReducer::refuse, or empty. `make` runs before the ranks meet, once
  /// the options are checked: all ranks learn it if it throws. Throws UsageError on every rank, or
  /// CommError.
  void meet(const Options& given, std::string refusal, const std::function<void()>& make);

  Transport& transport() const { return context.world(); }
  const Exec& exec() const { return context.exec(); }

  /// Seconds that a wait for other ranks may take.
  double patience() const { return options.deadline > 0 ? options.deadline : kPatience; }
  Deadline deadline() const { return Deadline::after(std::chrono::duration<double>(patience())); }

  /// Returns what agree returns, for a header with the options' digest.
  std::string agree(compress::Header mine, OwnWords words) const;

  Context context;
  Options options;
  compress::Preconditioner preconditioner{"none"};
  std::unique_ptr<compress::Compressor> compressor;
  std::vector<compress::Compressor> stages;  ///< of its warm-up, and the compressor itself
  Topology topology;
  std::unique_ptr<const Rails> rails;
  World world;                 ///< the ranks, as plans take them
  bool links_given = false;    ///< by the options, not measured
  bool places_differ = false;  ///< some ranks' buckets are on devices, others' on hosts
  std::uint64_t digest = 0;    ///< of all options that must be equal on all ranks
  std::string common_options;  ///< these, for the text of errors

 private:
  void check(const Options& given, const std::string& refusal);
  LinkModel find_links();
};

}  // namespace winnow::comm
