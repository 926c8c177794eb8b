// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/compressor.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <winnow/error.hpp>

#include "compress/nearest.hpp"
#include "compress/none.hpp"
#include "compress/partial.hpp"
#include "compress/support.hpp"
#include "compress/threshold.hpp"
#include "compress/topk.hpp"
#include "kernels/ordered_sum.hpp"

namespace winnow::compress {

namespace {

using kernels::Partition;
using kernels::ValueCoding;
using kernels::ValueFormat;

constexpr std::array kSelections = {
    SelectionEntry{"none", "none", make_none},
    SelectionEntry{"topk", "topk:DENSITY", make_topk},
    SelectionEntry{"threshold", "threshold[:T]", make_threshold},
};

/// Cuts the text before the next `mark` off `rest`.
std::string_view cut(std::string_view& rest, char mark) {
  const auto end = std::min(rest.find(mark), rest.size());
  const auto word = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return word;
}

const ValueCoding* find_value_coding(std::string_view name) {
  const auto codings = kernels::value_codings();
  const auto found = std::ranges::find(codings, name, &ValueCoding::name);
  return found == codings.end() ? nullptr : &*found;
}

const IndexCoding* find_index_coding(std::string_view name) {
  for (const IndexCoding* coding : index_codings()) {
    if (coding->name == name && coding->id != 0) return coding;
  }
  return nullptr;
}

ValueFormat default_format(const ValueCoding& coding) {
  return {.coding = &coding, .block = coding.default_block};
}

/// Reads ":block=128:stochastic" of a value coding.
void read_arguments(ValueFormat& format, std::string_view arguments) {
  constexpr std::string_view kBlock = "block=";
  const std::string name(format.coding->name);
  while (!arguments.empty()) {
    const std::string_view word = cut(arguments, ':');
    if (word == "stochastic") {
      WINNOW_EXPECTS(format.coding->stochastic, name + " rounds to the nearest only");
      format.rounding = kernels::Rounding::stochastic;
    } else if (word.starts_with(kBlock)) {
      WINNOW_EXPECTS(format.coding->default_block != 0, name + " has no blocks: it has no scales");
      const auto number = word.substr(kBlock.size());
      const auto [end, error] =
          std::from_chars(number.data(), number.data() + number.size(), format.block);
      WINNOW_EXPECTS(
          error == std::errc() && end == number.data() + number.size() &&
              std::has_single_bit(format.block) && format.block >= 64 && format.block <= 65536,
          "block takes a power of two from 64 to 65536, not '" + std::string(number) + "'");
    } else {
      fail_usage(name + " takes block=N or stochastic, not '" + std::string(word) + "'");
    }
  }
}

std::string format_text(const ValueFormat& format) {
  std::string text(format.coding->name);
  if (format.block != format.coding->default_block) {
    text += ":block=" + std::to_string(format.block);
  }
  if (format.rounding == kernels::Rounding::stochastic) text += ":stochastic";
  return text;
}

[[noreturn]] void fail_unknown(std::string_view specification, std::string_view word) {
  std::vector<std::string_view> known;
  for (const SelectionEntry& entry : kSelections) known.push_back(entry.name);
  for (const ValueCoding& coding : kernels::value_codings()) known.push_back(coding.name);
  for (const IndexCoding* coding : index_codings()) {
    if (coding->id != 0) known.push_back(coding->name);
  }
  fail_usage("unknown compressor '" + std::string(specification) + "'; did you mean '" +
             std::string(nearest_word(word, known)) + "'?");
}

/// Units below `unit` that belong to `owner`.
std::uint64_t units_before(const Partition& partition, std::uint32_t owner, std::uint64_t unit) {
  const std::uint64_t group = unit / partition.owners();
  return group + (partition.unit_of(owner, group) < unit ? 1 : 0);
}

/// Local numbers [begin, begin + count) of the positions of a piece that `owner` owns.
struct LocalRange {
  std::uint64_t begin, count;
};
LocalRange local_range(const Partition& partition, std::uint32_t owner, const Piece& piece) {
  const std::uint64_t size = piece.elements.size();
  const std::uint64_t first = piece.base / Partition::kUnit;
  const std::uint64_t last = first + (size + Partition::kUnit - 1) / Partition::kUnit;
  const std::uint64_t begin = units_before(partition, owner, first);
  std::uint64_t count = (units_before(partition, owner, last) - begin) * Partition::kUnit;
  const bool owns_last = count > 0 && partition.owner_of_unit(last - 1) == owner;
  if (owns_last) count -= (last - first) * Partition::kUnit - size;
  return {begin * Partition::kUnit, count};
}

}  // namespace

std::span<const SelectionEntry> selections() {
  return kSelections;
}

std::string Compressor::name() const {
  std::string text = selection();
  if (codings_.value.coding != Codings().value.coding) {
    if (text == "none") {
      text.clear();
    } else {
      text += ',';
    }
    text += format_text(codings_.value);
  }
  if (codings_.index != nullptr) (text += ',') += codings_.index->name;
  return text;
}

std::span<std::byte> Compressor::room(const Exec& exec, std::size_t bytes) const {
  return exec.workspace->take<std::byte>(bytes);
}

MessageView Compressor::open(const Exec& exec, std::span<const std::byte> message,
                             const Expected& expected, int sender) const {
  return compress::open(exec, message, expected, sender, codings_of(expected.header.kind));
}

Codings Compressor::codings_of(Header::Kind kind) const {
  if (kind == Header::Kind::partial) return partial_codings(codings_);
  if (kind == Header::Kind::support) return codings_.without_values();
  return codings_;
}

std::uint16_t Compressor::open_all(const Exec& exec, std::span<const Incoming> incoming,
                                   std::span<MessageView> views) const {
  std::uint16_t flags = 0;
  for (std::size_t i = 0; i < incoming.size(); ++i) {
    const auto& [message, expected, sender] = incoming[i];
    views[i] = open(exec, message, expected, sender);
    flags |= views[i].header.flags;
  }
  return flags;
}

void Compressor::open_unseen(const Exec&, std::span<const Incoming>, std::span<MessageView>,
                             kernels::CallStatus&) const {
  fail_usage("messages in host memory are opened by open_all: the host sees what they are");
}

MessageView Compressor::merge(const Exec& exec, const Header& header, const MessageView& first,
                              const MessageView& second) const {
  return compress::merge(exec, header, first, second, codings_);
}

void Compressor::pack(const Exec& exec, MessageView& sum, std::span<std::byte> out) const {
  compress::pack(exec, sum, out, codings_);
}

void Compressor::announce(const Exec& exec, const Header& header, std::span<std::byte> out) const {
  seal(exec, header, {}, out, codings_);
}

void Compressor::sum_gradients(const Exec& exec, std::span<const kernels::Term> gradients,
                               std::span<float> sum) const {
  kernels::ordered_sum(exec, {.terms = {gradients}, .sum = sum});
}

bool Compressor::write_outcome(const Exec& exec, const Part& part, const Outcome& outcome) const {
  // Messages say nothing of elements that nobody chose.
  if (!outcome.zeroed && !everything()) {
    for (const Piece& piece : part.pieces) std::ranges::fill(piece.elements, 0.0F);
  }
  const auto write = outcome.shared_out ? write_sums : add_messages;
  return write(exec, part, outcome.messages, outcome.factor);
}

void Compressor::put_back(const Exec& exec, const Part& part, std::uint32_t owner,
                          const MessageView& message) const {
  compress::put_back(exec, part, owner, message);
}

void Compressor::keep_left(const Exec& exec, const Part& part, const Owned& owned) const {
  compress::keep_left(exec, part, owned);
}

void Compressor::put_back_own(const Exec& exec, const Part& part, const Owned& owned) const {
  compress::put_back_own(exec, part, owned);
}

void Compressor::take(const Exec& exec, const EncodeJob& job, Taken& taken,
                      std::span<std::byte> out) const {
  take_values(exec, codings_, job, taken, out);
}

void Compressor::put(const Exec& exec, const Part& part, const Taken& taken) const {
  compress::put(exec, part, taken);
}

MessageView Compressor::place_values(const Exec& exec, const MessageView& support,
                                     const MessageView& values) const {
  return decode_values(exec, join_values(support, values));
}

void Compressor::add(const Exec& exec, const EncodeJob& job, std::span<const MessageView> terms,
                     const Addition& out) const {
  add_values(exec, codings_, job, terms, out);
}

std::unique_ptr<Compressor> make_compressor(std::string_view specification) {
  const SelectionEntry* selection = nullptr;
  std::string_view argument;
  Codings codings;
  bool has_value = false;
  std::string_view rest = specification;
  do {
    std::string_view arguments = cut(rest, ',');
    const std::string_view word = cut(arguments, ':');
    const auto entry = std::ranges::find(kSelections, word, &SelectionEntry::name);
    if (entry != kSelections.end() && selection == nullptr && !has_value) {
      selection = &*entry;
      argument = arguments;
    } else if (const ValueCoding* value = find_value_coding(word); value != nullptr && !has_value) {
      codings.value = default_format(*value);
      read_arguments(codings.value, arguments);
      has_value = true;
    } else if (const IndexCoding* index = find_index_coding(word);
               index != nullptr && codings.index == nullptr && selection != nullptr) {
      WINNOW_EXPECTS(arguments.empty(), std::string(word) + " takes no argument, not '" +
                                            std::string(arguments) + "'");
      codings.index = index;
    } else if (entry != kSelections.end() || value != nullptr || index != nullptr) {
      std::string text("'");
      text.append(word).append("' has no place there in '").append(specification);
      fail_usage(text +
                 "'; write SELECTION[:ARGUMENT][,VALUE[:block=N][:stochastic]][,INDEX], such as "
                 "topk:0.01,int8,eliasfano");
    } else {
      fail_unknown(specification, word);
    }
  } while (!rest.empty());
  if (selection == nullptr) selection = &kSelections.front();
  auto compressor = selection->make(argument, codings);
  WINNOW_EXPECTS(codings.index == nullptr || !compressor->everything(),
                 std::string(specification) +
                     " sends every element, which leaves nothing for an "
                     "index coding to say");
  return compressor;
}

std::size_t message_room(std::uint64_t count, std::uint64_t k, const Codings& codings) {
  // Indices grow with k, until at k = count there are none.
  const std::size_t room = message_bytes(count, k, codings);
  return k == count && k > 0 ? std::max(room, message_bytes(count, k - 1, codings)) : room;
}

void share_out(Part& part, const Compressor& compressor, std::uint32_t owners, std::uint32_t self) {
  part.partition = Partition(owners, part.count);
  part.places.reserve(part.pieces.size());
  become_owner(part, compressor, self);
  part.owner_k.assign(self == Part::kNobody ? 0 : owners, 0);
  part.k = part.most_k = 0;
  part.any_k = compressor.any_k();
  part.bound = compressor.bound();
  for (Piece& piece : part.pieces) {
    const std::uint64_t size = piece.elements.size();
    part.most_k += compressor.kept(size);
    for (std::uint32_t owner = 0; owner < part.owner_k.size(); ++owner) {
      part.owner_k[owner] += compressor.kept(local_range(part.partition, owner, piece).count);
    }
    piece.k = static_cast<std::uint32_t>(compressor.kept(size - piece.own_count));
    part.k += piece.k;
  }
  if (!compressor.everything() && !part.any_k) return;
  part.k = part.most_k = part.count;  // gaps travel too
  for (std::uint32_t owner = 0; owner < part.owner_k.size(); ++owner) {
    part.owner_k[owner] = part.partition.local_count(owner);
  }
}

void become_owner(Part& part, const Compressor& compressor, std::uint32_t self) {
  part.self = self;
  for (Piece& piece : part.pieces) {
    const LocalRange range =
        self == Part::kNobody ? LocalRange{0, 0} : local_range(part.partition, self, piece);
    piece.own_begin = range.begin;
    piece.own_count = range.count;
    piece.own_k = static_cast<std::uint32_t>(compressor.kept(range.count));
  }
}

}  // namespace winnow::compress
