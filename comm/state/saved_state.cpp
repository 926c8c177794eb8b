// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/state/saved_state.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "comm/state/crc64.hpp"
#include "compress/part.hpp"

namespace winnow::comm {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kMagic =
    std::bit_cast<std::uint64_t>(std::array<char, 8>{'W', 'N', 'W', 'S', 'T', 'A', 'T', 'E'});
constexpr std::uint64_t kVersion = 3;
constexpr std::uint64_t kVersionOfFnv = 2;  // without names
constexpr std::size_t kWord = sizeof(std::uint64_t);

/// FNV-1a over words. Its product moves bits upwards alone, so it misses flips of two top bits:
/// what ends with it is read, and no longer written.
std::uint64_t fnv_of(std::span<const std::byte> words) {
  std::uint64_t digest = 0xcbf29ce484222325;
  for (std::size_t at = 0; at < words.size(); at += kWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, &words[at], kWord);
    digest = (digest ^ word) * 0x100000001b3;
  }
  return digest;
}

class Writer {
 public:
  void word(std::uint64_t value) { append(&value, kWord); }
  template <class List>
  void list(const List& values) {
    append(values.data(), values.size() * sizeof(typename List::value_type));
    bytes_.resize((bytes_.size() + kWord - 1) / kWord * kWord);
  }
  std::vector<std::byte> end() && {
    word(crc64(bytes_));
    return std::move(bytes_);
  }

 private:
  void append(const void* data, std::size_t size) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }

  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::uint64_t word() {
    std::uint64_t value = 0;
    take(&value, kWord);
    return value;
  }
  /// `count` entries.
  template <class T>
  std::vector<T> list(std::uint64_t count) {
    if (count > rest_.size() / sizeof(T)) fail();
    std::vector<T> values(count);
    const std::size_t size = count * sizeof(T);
    take(values.data(), size);
    skip((size + kWord - 1) / kWord * kWord - size);
    return values;
  }
  bool at_end() const { return rest_.empty(); }
  [[noreturn]] static void fail() {
    fail_usage("these bytes are no state that an AllReducer has saved, or they are damaged");
  }

 private:
  void take(void* to, std::size_t size) {
    if (size > rest_.size()) fail();
    if (size > 0) std::memcpy(to, rest_.data(), size);
    rest_ = rest_.subspan(size);
  }
  void skip(std::size_t size) {
    if (size > rest_.size()) fail();
    rest_ = rest_.subspan(size);
  }

  std::span<const std::byte> rest_;
};

/// Makes room for a residual, which all ranks have or none.
void begin_residual(SavedParameter& parameter) {
  if (parameter.residual.empty())
    parameter.residual.resize(parameter.count, -0.0F);  // no sign changes
  for (SavedPiece& piece : parameter.pieces) piece.dirty = 1;
}

/// Adds what an old rank held to what this rank begins with.
void add(SavedParameter& into, const SavedParameter& from, float scale) {
  begin_residual(into);
  for (std::size_t i = 0; i < from.residual.size(); ++i) {
    into.residual[i] += scale * from.residual[i];
  }
}

/// Turns the state of a single old rank into the state of rank `rank` of `ranks`.
SavedState go_on(SavedState state, int rank, int ranks, float scale) {
  state.ranks = static_cast<std::uint32_t>(ranks);
  state.rank = static_cast<std::uint32_t>(rank);
  for (SavedParameter& parameter : state.parameters) {
    for (float& waiting : parameter.residual) waiting *= scale;
    const std::uint64_t dirty = parameter.residual.empty() ? 0 : 1;
    for (SavedPiece& piece : parameter.pieces) piece = {.turn = piece.turn, .dirty = dirty};
  }
  return state;
}

}  // namespace

std::vector<std::byte> to_bytes(const SavedState& state) {
  Writer writer;
  writer.word(kMagic);
  writer.word(kVersion);
  writer.word(state.ranks);
  writer.word(state.rank);
  writer.word(state.calls);
  writer.word(state.parameters.size());
  for (const SavedParameter& parameter : state.parameters) {
    writer.word(parameter.id);
    writer.word(parameter.count);
    writer.word(parameter.piece_length);
    writer.word(parameter.pieces.size());
    writer.word(parameter.residual.size());
    writer.word(parameter.calls);
    writer.word(parameter.counted);
    writer.word(parameter.moment.size());
    writer.word(parameter.name.size());
    writer.list(parameter.pieces);
    writer.list(parameter.residual);
    writer.list(parameter.moment);
    writer.list(parameter.name);
  }
  return std::move(writer).end();
}

SavedState from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() < 3 * kWord || bytes.size() % kWord != 0) Reader::fail();
  const auto body = bytes.first(bytes.size() - kWord);
  Reader reader(body);
  if (reader.word() != kMagic) Reader::fail();
  const std::uint64_t version = reader.word();
  WINNOW_EXPECTS(version == kVersion || version == kVersionOfFnv,
                 "this state has version " + std::to_string(version) +
                     ", and this Winnow reads versions " + std::to_string(kVersionOfFnv) + " and " +
                     std::to_string(kVersion) + ": a newer Winnow saved it, or it is damaged");
  const std::uint64_t sum = version == kVersion ? crc64(body) : fnv_of(body);
  if (Reader(bytes.subspan(body.size())).word() != sum) Reader::fail();
  SavedState state;
  state.ranks = static_cast<std::uint32_t>(reader.word());
  state.rank = static_cast<std::uint32_t>(reader.word());
  state.calls = reader.word();
  for (std::uint64_t left = reader.word(); left > 0; --left) {
    SavedParameter parameter{
        .id = reader.word(), .count = reader.word(), .piece_length = reader.word()};
    const std::uint64_t pieces = reader.word(), elements = reader.word();
    parameter.calls = reader.word();
    parameter.counted = reader.word();
    const std::uint64_t moments = reader.word();
    const std::uint64_t letters = version == kVersion ? reader.word() : 0;
    const auto is_whole = [&](std::uint64_t size) { return size == 0 || size == parameter.count; };
    const bool whole = is_whole(elements) && is_whole(moments);
    const bool cut = parameter.piece_length > 0
                         ? pieces == parameter.count / parameter.piece_length +
                                         (parameter.count % parameter.piece_length > 0 ? 1 : 0)
                         : pieces == 0;
    if (!whole || !cut) Reader::fail();
    parameter.pieces = reader.list<SavedPiece>(pieces);
    parameter.residual = reader.list<float>(elements);
    parameter.moment = reader.list<float>(moments);
    const auto name = reader.list<char>(letters);
    parameter.name.assign(name.begin(), name.end());
    state.parameters.push_back(std::move(parameter));
  }
  if (!reader.at_end() || state.ranks == 0 || state.rank >= state.ranks) Reader::fail();
  return state;
}

SavedState take_over(std::span<const std::span<const std::byte>> states, int rank, int ranks,
                     bool averages) {
  WINNOW_EXPECTS(!states.empty(), "load is given no state");
  const auto scale_from = [&](std::uint32_t old_ranks) {
    return averages ? static_cast<float>(ranks) / static_cast<float>(old_ranks) : 1.0F;
  };
  const auto is_given = [](std::span<const std::byte> state) { return state.data() != nullptr; };
  if (states.size() > 1 && std::ranges::count_if(states, is_given) == 1) {
    SavedState one = from_bytes(*std::ranges::find_if(states, is_given));
    WINNOW_EXPECTS(states.size() == one.ranks,
                   "load is given one of " + std::to_string(states.size()) +
                       " states, and there were " + std::to_string(one.ranks) + " ranks");
    const float scale = scale_from(one.ranks);
    return go_on(std::move(one), rank, ranks, scale);
  }
  const auto my_rank = static_cast<std::uint32_t>(rank), now = static_cast<std::uint32_t>(ranks);
  SavedState mine;
  std::uint32_t before = 0;
  std::map<std::uint32_t, std::size_t> of_rank;  // the states that this rank needs
  std::map<std::uint64_t, SavedParameter> parameters;
  std::vector<bool> found;
  std::set<std::uint64_t> waiting;  // parameters for which an old rank has a residual
  for (std::size_t i = 0; i < states.size(); ++i) {
    // Old ranks in ascending order, whatever the order of states: sums depend on it.
    const SavedState one = from_bytes(states[i]);
    if (i == 0) {
      before = one.ranks;
      mine.calls = one.calls;
      found.resize(before);
    }
    WINNOW_EXPECTS(one.ranks == before && one.calls == mine.calls,
                   "load is given states of different jobs or steps");
    WINNOW_EXPECTS(!found[one.rank],
                   "load is given two states of rank " + std::to_string(one.rank));
    found[one.rank] = true;
    if (one.rank % now == my_rank) of_rank.emplace(one.rank, i);
    for (const SavedParameter& parameter : one.parameters) {
      SavedParameter& known = parameters[parameter.id];
      if (known.count == 0) known = parameter;  // of calls and pieces all ranks know the same
      if (!parameter.residual.empty()) waiting.insert(parameter.id);
      known.residual.clear();
      if (one.rank == my_rank % before) {
        known.counted = parameter.counted;
        known.moment = parameter.moment;
      }
      for (SavedPiece& piece : known.pieces) piece = {.turn = piece.turn};
      WINNOW_EXPECTS(known.count == parameter.count,
                     "load is given states in which " +
                         compress::label_of(parameter.id, parameter.name) +
                         " has different counts");
    }
  }
  const bool all = std::ranges::find(found, false) == found.end();
  WINNOW_EXPECTS(all || (before == now && found[my_rank]),
                 "load is given " + std::to_string(states.size()) + " of the states of " +
                     std::to_string(before) + " ranks: must be all of them" +
                     (before == now ? ", or that of rank " + std::to_string(rank) : ""));
  const float scale = scale_from(before);
  for (const auto& [old_rank, place] : of_rank) {
    for (const SavedParameter& parameter : from_bytes(states[place]).parameters) {
      if (parameter.residual.empty()) continue;
      SavedParameter& known = parameters[parameter.id];
      add(known, parameter, scale);
      if (before == now) known.pieces = parameter.pieces;
    }
  }
  if (before != now) {
    for (const std::uint64_t id : waiting) begin_residual(parameters[id]);
  }
  mine.ranks = now;
  mine.rank = my_rank;
  for (auto& [id, parameter] : parameters) mine.parameters.push_back(std::move(parameter));
  return mine;
}

}  // namespace winnow::comm
