// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <winnow/exec.hpp>

#include "compress/message.hpp"
#include "compress/part.hpp"
#include "kernels/feedback_select.hpp"
#include "kernels/select_sums.hpp"

namespace winnow::compress {

struct Choice;

/// The pass over one piece. Spans and words lie in the memory of exec.place.
struct AccumulateJob {
  double argument = 0;  ///< Choice::argument
  kernels::FeedbackSpans spans = {};
  std::uint32_t base = 0;  ///< position of the piece's first element
  /// Room for the piece's k elements; if Chooses::variable_k, a list that the pieces fill one after
  /// the other.
  std::span<std::uint32_t> index = {};
  std::span<float> value = {};
  std::uint64_t* kept = nullptr;  ///< if variable_k: entries of the list, which grow
  Bounds* bounds = nullptr;       ///< of the piece
  kernels::SelectResult* result = nullptr;
  kernels::Side side = kernels::Side::both;  ///< one side only if Chooses::takes_side
};

/// The selection among the sums of one piece that this rank owns, likewise.
struct SumsJob {
  kernels::OwnedSums owned = {};                       ///< with what the pass listed
  const kernels::SelectResult* accumulated = nullptr;  ///< the result of the pass
  kernels::PlacedTerms terms = {};  ///< what other ranks sent, as lists by local number
  kernels::SumLists out = {};       ///< index and value as in AccumulateJob
  std::uint64_t* kept = nullptr;
  std::uint64_t* touched_count = nullptr;  ///< becomes how many of out.touched there are
  Bounds* bounds = nullptr;
  kernels::SelectResult* result = nullptr;
};

// A selection decides which elements travel in one of three ways.

/// Every element travels.
struct KeepsAll {};
/// All ranks draw the same positions of a message before there is a gradient.
struct Draws {
  const IndexCoding* coding;
};
/// The gradient decides.
struct Chooses {
  bool variable_k = false;  ///< the gradient also decides how many elements are kept
  bool takes_side = false;  ///< `accumulate` can select elements of one sign
  /// Error feedback and selection in one pass, piece after piece.
  void (*accumulate)(const Exec& exec, std::span<const AccumulateJob> jobs) = nullptr;
  /// The most scratch that `accumulate` takes, in bytes.
  std::size_t (*accumulate_scratch)(const Exec& exec,
                                    std::span<const AccumulateJob> jobs) = nullptr;
  /// Adds the terms to the sums that this rank owns, and selects among them, piece after piece.
  void (*select_sums)(const Exec& exec, std::span<const SumsJob> jobs) = nullptr;
  /// The most scratch that `select_sums` takes, in bytes.
  std::size_t (*select_sums_scratch)(const Exec& exec, std::span<const SumsJob> jobs) = nullptr;
};

/// A line of the table of selections: which elements of a gradient travel. To add one, write its
/// file and put its row into the table in specification.cpp.
struct Selection {
  std::string_view name;
  std::string_view grammar;  ///< how it is written, for messages and --help
  /// Reads what follows the name. Throws UsageError, also for value codings that the selection
  /// cannot take.
  Choice (*parse)(std::string_view argument, const Codings& codings);
  /// Elements kept of `count`; if variable_k, the most.
  std::uint64_t (*kept)(double argument, std::uint64_t count);
  std::variant<KeepsAll, Draws, Chooses> support;
};

/// A selection with its argument.
struct Choice {
  const Selection* selection;
  double argument;
  std::string name;  ///< canonical, e.g. "topk:0.01"
  /// Calls of a parameter in which its density falls to `argument`: see Compressor::stages.
  std::uint64_t warm_up = 0;
  double sums = 0;          ///< share that an owner keeps of its sums; 0: `argument`
  std::uint64_t block = 0;  ///< if not 0, elements that compete with each other: a multiple of 64
};

extern const Selection kNone, kTopK, kBlockTopK, kThreshold, kRandomK;

/// The choice of every element, under another selection's name.
Choice choose_everything(std::string name);

/// The choice of a share of the elements, above 0 and at most 1, perhaps with ":warmup=CALLS" and,
/// if `takes_sums`, ":sums=SHARE". Throws UsageError if the argument is none.
Choice choose_density(const Selection& selection, std::string_view argument,
                      bool takes_sums = false);
/// Selection::kept of it: max(1, ceil(density * count)), or 0 of none.
std::uint64_t kept_of_density(double density, std::uint64_t count);

}  // namespace winnow::compress
