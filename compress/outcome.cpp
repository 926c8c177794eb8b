// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The end of the path: the elements become the sum.
#include <algorithm>
#include <array>

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
  const kernels::OwnedWrite& how;
  std::uint64_t most_coded;  ///< the longest list of coded values
  bool variable_k;
};

/// For work that reads messages, or keeps what is left of their sums.
Exec reading(Exec exec, const Target& target) {
  const kernels::CallStatus* const status = target.outcome.status;
  if (status == nullptr) return exec;
  exec.condition = target.how.rests.empty() ? kernels::sound(*status) : kernels::accepted(*status);
  return exec;
}

/// Elements = the sum of terms by position.
void write_terms(const Exec& exec, const Target& target, std::span<const Term> terms) {
  const kernels::OwnedWrite& how = target.how;
  const Exec sound = reading(exec, target);
  const auto placed = kernels::place_terms_to_sum(exec, terms, target.most_coded);
  kernels::ordered_sum(sound, {.terms = placed,
                               .sums = target.elements,
                               .factor = how.factor,
                               .not_finite = how.not_finite,
                               .after_accumulate = target.outcome.after_encode,
                               .too_large = how.too_large,
                               .rests = how.rests});
}

/// Elements = what each owner sent of its sums.
void write_sums(const Exec& exec, const Target& target) {
  const Part& part = target.part;
  const std::span<const MessageView> messages = target.outcome.messages;
  const Exec sound = reading(exec, target);
  const auto lists = exec.workspace->take<Term>(messages.size());
  // If k is variable, takes the same scratch whatever was kept.
  const auto room_of = [&](std::uint32_t owner) {
    const Term& list = messages[owner].term;
    return target.variable_k ? part.partition.local_count(owner)
           : list.is_list()  ? list.size()
                             : std::uint64_t{0};
  };
  std::size_t room = 0, count = 0;
  for (std::uint32_t owner = 0; owner < messages.size(); ++owner) {
    room += kernels::Arrays<std::uint32_t>::room(room_of(owner));
  }
  kernels::Arrays<std::uint32_t> positions_room(kernels::scratch_of(exec), room);
  kernels::together(sound, [&] {
    for (std::uint32_t owner = 0; owner < messages.size(); ++owner) {
      Term list = messages[owner].term;
      const auto positions = positions_room.next(room_of(owner)).first(list.index.size());
      if (!list.is_list()) continue;
      kernels::positions_of(sound, part.partition, owner, list.index, positions);
      list.index = positions;
      lists[count++] = list;
    }
  });
  // Lists first: their sum may also write where they name nothing.
  if (count > 0) write_terms(exec, target, lists.first(count));
  kernels::together(sound, [&] {
    for (std::uint32_t owner = 0; owner < messages.size(); ++owner) {
      const Term& values = messages[owner].term;
      if (values.is_list()) continue;
      kernels::write_owned(sound,
                           {.partition = part.partition,
                            .owner = owner,
                            .pieces = target.elements,
                            .values = values},
                           target.how);
    }
  });
}

}  // namespace

void Compressor::write(const Exec& exec, const Part& part, const Outcome& outcome,
                       const kernels::OwnedWrite& how) const {
  Outcome written = outcome;
  written.after_encode = outcome.after_encode && !keeps_all();
  const Target target{
      .part = part,
      .elements = outcome.elements.host.empty() ? place_elements(exec, part) : outcome.elements,
      .outcome = written,
      .how = how,
      .most_coded = decoded_room(outcome.partitioned ? std::ranges::max(part.owner_k) : part.k),
      .variable_k = variable_k()};
  if (outcome.partitioned) {
    write_sums(exec, target);
  } else {
    const auto terms = exec.workspace->take<Term>(outcome.messages.size());
    std::ranges::transform(outcome.messages, terms.begin(), &MessageView::term);
    write_terms(exec, target, terms);
  }
}

Written Compressor::write_outcome(const Exec& exec, const Part& part,
                                  const Outcome& outcome) const {
  if (outcome.messages.empty() || part.count == 0) return {};  // dense writes its own
  const kernels::ScratchScope scope(exec);
  if (kernels::CallStatus* const status = outcome.status; status != nullptr) {
    write(exec, part, outcome, {outcome.factor, &status->not_finite, &status->too_large});
    return {};
  }
  const auto found = kernels::take_zeros<std::array<std::uint32_t, 2>>(exec, 1);
  auto& [not_finite, too_large] = found[0];
  write(exec, part, outcome, {outcome.factor, &not_finite, &too_large});
  const auto [is_not_finite, is_too_large] = kernels::read(exec, found.data());
  return {.finite = is_not_finite == 0, .fits = is_too_large == 0};
}

void Compressor::keep_rests(const Exec& exec, const Part& part, const Outcome& outcome,
                            const kernels::Rests& rests) const {
  if (outcome.messages.empty() || part.count == 0) return;
  const kernels::ScratchScope scope(exec);
  write(exec, part, outcome, {.factor = outcome.factor, .rests = rests});
}

}  // namespace winnow::compress
