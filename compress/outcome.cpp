// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The end of the path: the elements become the sum.
#include <algorithm>

#include "compress/compressor.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/split.hpp"

namespace winnow::compress {

namespace {

using kernels::Term;

/// A part's elements, on which the sum is written.
struct Target {
  const Part& part;
  kernels::Placed<kernels::PlacedSpan> elements;
  const Outcome& outcome;
  std::uint64_t most_coded;   ///< the longest list of coded values
  std::uint32_t* not_finite;  ///< becomes 1 if an element is not finite
};

/// For work that reads messages.
Exec reading(Exec exec, const Outcome& outcome) {
  if (outcome.status != nullptr) exec.condition = kernels::sound(*outcome.status);
  return exec;
}

/// Elements = the sum of terms by position.
void write_terms(const Exec& exec, const Target& target, std::span<const Term> terms) {
  const Outcome& outcome = target.outcome;
  const auto placed = kernels::place_terms_to_sum(exec, terms, target.most_coded);
  kernels::ordered_sum(reading(exec, outcome), {.terms = placed,
                                                .sums = target.elements,
                                                .factor = outcome.factor,
                                                .not_finite = target.not_finite,
                                                .sums_are_fed = outcome.fed});
}

/// Elements = what each owner sent of its sums.
void write_sums(const Exec& exec, const Target& target) {
  const Part& part = target.part;
  const std::span<const MessageView> messages = target.outcome.messages;
  const Exec sound = reading(exec, target.outcome);
  const auto lists = exec.workspace->take<Term>(messages.size());
  std::size_t count = 0;
  kernels::together(sound, [&] {
    for (std::uint32_t owner = 0; owner < messages.size(); ++owner) {
      Term list = term(messages[owner]);
      // If k is variable, takes the same scratch whatever was kept.
      const std::uint64_t most = part.variable_k  ? part.partition.local_count(owner)
                                 : list.is_list() ? list.size()
                                                  : 0;
      const auto position = kernels::scratch_of(exec).take<std::uint32_t>(most);
      if (!list.is_list()) continue;
      const auto positions = position.first(list.index.size());
      kernels::positions_of(sound, part.partition, owner, list.index, positions);
      list.index = positions;
      lists[count++] = list;
    }
  });
  // Lists first: their sum may also write where they name nothing.
  if (count > 0) write_terms(exec, target, lists.first(count));
  kernels::together(sound, [&] {
    for (std::uint32_t owner = 0; owner < messages.size(); ++owner) {
      const Term values = term(messages[owner]);
      if (values.is_list()) continue;
      kernels::write_owned(sound,
                           {.partition = part.partition,
                            .owner = owner,
                            .pieces = target.elements,
                            .values = values},
                           target.outcome.factor, target.not_finite);
    }
  });
}

}  // namespace

bool Compressor::write_outcome(const Exec& exec, const Part& part, const Outcome& outcome) const {
  if (outcome.messages.empty() || part.count == 0) return true;  // dense writes its own
  const kernels::ScratchScope scope(exec);
  const bool answers = outcome.status == nullptr;
  std::uint32_t* const not_finite =
      answers ? kernels::take_zeros<std::uint32_t>(exec, 1).data() : &outcome.status->not_finite;
  Outcome written = outcome;
  written.fed = outcome.fed && !keeps_all();
  Target target{
      .part = part,
      .elements = outcome.elements.host.empty() ? place_elements(exec, part) : outcome.elements,
      .outcome = written,
      .most_coded = 0,
      .not_finite = not_finite};
  if (!keeps_all() && !codings_.exact()) {
    target.most_coded = outcome.partitioned ? std::ranges::max(part.owner_k) : part.k;
  }
  if (outcome.partitioned) {
    write_sums(exec, target);
  } else {
    const auto terms = exec.workspace->take<Term>(outcome.messages.size());
    std::ranges::transform(outcome.messages, terms.begin(), term);
    write_terms(exec, target, terms);
  }
  return !answers || kernels::read(exec, not_finite) == 0;
}

}  // namespace winnow::compress
