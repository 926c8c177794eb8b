// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/owned.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/rest.hpp"
#include "kernels/cpu/gallop.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/memory_ops.hpp"

// Threads share out the values: each value is of another element, so they never meet.
//
//   stretch  of values for each local number: elements of one piece that follow each other there
//            and by local number, within one unit or, with one owner, as long as the piece
//   chunk    of a list: entries of one piece, whose elements, each in a cache line of its own, are
//            fetched ahead
//   tile     of coded values: decoded together

namespace winnow::kernels::cpu {

namespace {

constexpr std::uint64_t kUnit = Partition::kUnit;
constexpr std::size_t kChunk = 1024, kTile = 4096;
constexpr std::uint64_t kGroupsAhead = 2;  // units lie too far apart for the machine to foresee

void fetch_unit(std::span<const std::byte> unit) {
  constexpr std::size_t kCacheLine = 64;
  for (std::size_t i = 0; i < unit.size(); i += kCacheLine) __builtin_prefetch(&unit[i], 1);
}

/// Values from some place on, decoded as they are asked for in ascending order.
class Values {
 public:
  Values(const Exec& exec, const Term& term, std::uint64_t end)
      : alone_{.place = exec.place}, term_(term), all_(end) {}

  /// The values from `begin` on: `least` of them or more.
  std::span<const float> from(std::uint64_t begin, std::uint64_t least) {
    if (term_.coded.empty()) return term_.value.subspan(begin);
    if (begin < begin_ || begin + least > end_) {
      begin_ = begin;
      end_ = std::min(begin + kTile, all_);
      dequantize(alone_, term_.format, term_.count, term_.coded, begin_,
                 {tile_.data(), static_cast<std::size_t>(end_ - begin_)});
    }
    return {tile_.data() + (begin - begin_), static_cast<std::size_t>(end_ - begin)};
  }

 private:
  const Exec alone_;
  const Term& term_;
  std::array<float, kTile> tile_;
  std::uint64_t all_, begin_ = 0, end_ = 0;
};

/// Entries of a list from `first` on, all in one piece.
struct Chunk {
  static constexpr std::size_t kAhead = 32;  // entries: covers the latency of memory

  std::uint64_t first = 0;
  std::size_t size = 0;
  Elements elements = {};
  const std::uint32_t* index = nullptr;  ///< of the only owner: elements[index[i] - base]; or null
  std::uint32_t base = 0;
  std::array<std::uint64_t, kChunk> offset;  ///< else elements[offset[i]]

  /// The place in `elements` of entry first + i.
  std::uint64_t place_of(std::size_t i) const {
    return index != nullptr ? index[i] - base : offset[i];
  }

  /// Calls each(element, its place in the chunk) if they are float32, fetching elements ahead.
  template <class Each>
  void walk(const Each& each) const {
    if (index != nullptr) {
      walk_by([this](std::size_t i) { return index[i] - base; }, each);
    } else {
      walk_by([this](std::size_t i) { return offset[i]; }, each);
    }
  }

 private:
  template <class OffsetOf, class Each>
  void walk_by(const OffsetOf& offset_of, const Each& each) const {
    float* const to = elements.floats().data();
    for (std::size_t i = 0; i < std::min(kAhead, size); ++i) {
      __builtin_prefetch(to + offset_of(i), 1);
    }
    const std::size_t ahead = size - std::min(size, kAhead);
    std::size_t i = 0;
    for (; i < ahead; ++i) {
      __builtin_prefetch(to + offset_of(i + kAhead), 1);
      each(to[offset_of(i)], i);
    }
    for (; i < size; ++i) each(to[offset_of(i)], i);
  }
};

/// Values [begin, end) of a job that one thread has. `begin` is a multiple of 64, but of a list.
struct Share {
  const Exec& exec;
  const OwnedJob& job;
  std::uint64_t begin, end;
  std::size_t first_piece = 0;  ///< of a list: entries from `begin` on are of none before it

  bool is_list() const { return !job.values.index.empty(); }

  /// Calls each(elements, first value) for the stretches.
  template <class Each>
  void for_each_stretch(const Each& each) const {
    const Partition partition = job.partition;
    const std::uint64_t owners = partition.owners();
    for (const PlacedSpan& piece : job.pieces.host) {
      const Elements& elements = piece.elements;
      const std::uint64_t from = piece.base, to = from + elements.size();
      if (owners == 1) {
        const std::uint64_t first = std::max(from, begin), last = std::min(to, end);
        if (first < last) each(elements.subspan(first - from, last - first), first);
        continue;
      }
      for (std::uint64_t group = std::max(from / owners, begin) / kUnit;; ++group) {
        const std::uint64_t unit = partition.unit_of(job.owner, group) * kUnit;
        const std::uint64_t local = group * kUnit;
        if (local * owners >= to || local >= end) break;
        const std::uint64_t ahead = partition.unit_of(job.owner, group + kGroupsAhead) * kUnit;
        if (ahead >= from && ahead + kUnit <= to) {
          fetch_unit(elements.subspan(ahead - from, kUnit).bytes());
        }
        if (unit < from || unit >= to) continue;
        each(elements.subspan(unit - from, std::min({kUnit, to - unit, end - local})), local);
      }
    }
  }

  /// Calls each(chunk) for the chunks, and none(first entry, end) for the entries between them,
  /// whose positions are of no piece.
  template <class Each, class None>
  void for_each_chunk(const Each& each, const None& none) {
    const Partition partition = job.partition;
    const std::uint32_t owner = job.owner;
    const std::uint32_t* const index = job.values.index.data();
    const auto find = [&](std::uint64_t from, std::uint64_t local) {
      return gallop(from, end, [&](std::size_t j) { return index[j] < local; });
    };
    Chunk chunk;
    std::uint64_t j = begin;
    const auto pieces = job.pieces.host;
    const std::uint64_t lowest = begin < end ? partition.position(owner, index[begin]) : 0;
    std::size_t next = gallop(first_piece, pieces.size(),
                              [&](std::size_t p) { return pieces[p].end() <= lowest; });
    for (; next < pieces.size() && j < end; ++next) {
      first_piece = next;
      const PlacedSpan& piece = pieces[next];
      const std::uint64_t first = find(j, partition.local_before(owner, piece.base));
      const std::uint64_t last =
          find(first, partition.local_before(owner, piece.base + piece.elements.size()));
      if (j < first) none(j, first);
      chunk.elements = piece.elements;
      for (chunk.first = first; chunk.first < last; chunk.first += chunk.size) {
        const std::uint64_t left = last - chunk.first;
        const std::uint32_t* const local = index + chunk.first;
        if (partition.owners() == 1) {
          chunk.size = static_cast<std::size_t>(std::min<std::uint64_t>(kTile, left));
          chunk.index = local;
          chunk.base = static_cast<std::uint32_t>(piece.base);
        } else {
          chunk.size = static_cast<std::size_t>(std::min<std::uint64_t>(kChunk, left));
          chunk.index = nullptr;
          for (std::size_t i = 0; i < chunk.size; ++i) {
            chunk.offset[i] = partition.position(owner, local[i]) - piece.base;
          }
        }
        each(chunk);
      }
      j = last;
    }
    if (j < end) none(j, end);
  }

  /// Calls of_list(chunk, its values) or of_all(elements, their values) for what goes somewhere.
  template <class OfList, class OfAll>
  void for_each_run(const OfList& of_list, const OfAll& of_all) {
    Values values(exec, job.values, end);
    if (is_list()) {
      for_each_chunk(
          [&](const Chunk& chunk) { of_list(chunk, values.from(chunk.first, chunk.size).data()); },
          [](std::uint64_t, std::uint64_t) {});
      return;
    }
    for_each_stretch([&](const Elements& elements, std::uint64_t j) {
      for (std::uint64_t at = 0; at < elements.size();) {
        const std::uint64_t left = elements.size() - at;
        const auto value = values.from(j + at, std::min(kUnit, left));
        const std::uint64_t here = std::min<std::uint64_t>(value.size(), left);
        of_all(elements.subspan(at, here), value.data());
        at += here;
      }
    });
  }
  /// Calls each(element, value) for these, of float32.
  template <class Each>
  void for_each(const Each& each) {
    for_each_run(
        [&](const Chunk& chunk, const float* value) {
          chunk.walk([&](float& element, std::size_t i) { each(element, value[i]); });
        },
        [&](const Elements& elements, const float* value) {
          const std::span<float> to = elements.floats();
          for (std::size_t i = 0; i < to.size(); ++i) each(to[i], value[i]);
        });
  }
};

/// Runs body(share) in each thread.
template <class Body>
void for_each_share(const Exec& exec, const OwnedJob& job, const Body& body) {
  for_each_range(exec.threads, job.size(), [&](std::size_t begin, std::size_t end) {
    Share share{exec, job, begin, end};
    body(share);
  });
}

}  // namespace

void add_owned(const Exec& exec, const OwnedJob& job) {
  for_each_share(exec, job, [](Share& share) {
    share.for_each([](float& element, float value) { element += value; });
  });
}

void store_owned(const Exec& exec, const OwnedJob& job) {
  const auto store = [](Share& share) {
    share.for_each([](float& element, float value) {
      if (std::isfinite(value)) element = value;
    });
  };
  const auto runs = job.runs.host;
  if (runs.empty()) return for_each_share(exec, job, store);
  std::uint64_t entries = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) entries += job.run_size(i);
  for_each_range(exec.threads, entries, [&](std::size_t begin, std::size_t end) {
    Share share{exec, job, 0, 0};
    std::uint64_t before = 0;  // entries of the runs before
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::uint64_t size = job.run_size(i);
      share.begin =
          runs[i].begin + std::clamp<std::uint64_t>(begin, before, before + size) - before;
      share.end = runs[i].begin + std::clamp<std::uint64_t>(end, before, before + size) - before;
      if (share.begin < share.end) store(share);
      before += size;
    }
  });
}

namespace {

/// The rests of values * factor at the positions of one piece, by its residual.
void keep_rests(const Exec& exec, const OwnedJob& job, const OwnedWrite& sums, ElementType type,
                const PlacedSpan& residual) {
  const RestKeeper& keeper = sums.rests.keeper;
  const ElementRange range = range_of(type);
  const float* const begin = residual.elements.floats().data();
  OwnedJob here = job;
  here.pieces = {{&residual, 1}, nullptr};
  for_each_share(exec, here, [&](Share& share) {
    share.for_each([&](float& kept, float value) {
      const float sum = value * sums.factor;
      if (!range.exceeded_by(sum)) return;
      const auto position = residual.base + static_cast<std::uint64_t>(&kept - begin);
      if (keeper.keeps(position)) kept = keeper.add_rest(kept, sum, range);
    });
  });
}

}  // namespace

void write_owned(const Exec& exec, const OwnedJob& job, const OwnedWrite& sums) {
  const float factor = sums.factor;
  if (!sums.rests.empty()) {
    if (sums.rests.are_none()) return;
    for (std::size_t i = 0; i < job.pieces.host.size(); ++i) {
      keep_rests(exec, job, sums, job.pieces.host[i].elements.type(), sums.rests.residuals.host[i]);
    }
    return;
  }
  std::atomic<bool> finite{true}, fits{true};
  for_each_share(exec, job, [&](Share& share) {
    std::uint32_t largest = 0;  // magnitude
    bool exceeded = false;
    const auto see = [&](float element) {
      largest = std::max(largest, std::bit_cast<std::uint32_t>(element) & 0x7fffffffu);
    };
    const auto write = [&](const Elements& elements, std::size_t i, float sum, ElementRange range) {
      exceeded |= range.exceeded_by(sum);
      see(write_element(elements, i, range.clip(sum)));
    };
    share.for_each_run(
        [&](const Chunk& chunk, const float* value) {
          if (chunk.elements.type() == ElementType::float32) {
            chunk.walk([&](float& element, std::size_t i) { see(element = value[i] * factor); });
            return;
          }
          const ElementRange range = range_of(chunk.elements.type());
          for (std::size_t i = 0; i < chunk.size; ++i) {
            write(chunk.elements, chunk.place_of(i), value[i] * factor, range);
          }
        },
        [&](const Elements& elements, const float* value) {
          if (elements.type() == ElementType::float32) {
            const std::span<float> to = elements.floats();
            for (std::size_t i = 0; i < to.size(); ++i) see(to[i] = value[i] * factor);
            return;
          }
          const ElementRange range = range_of(elements.type());
          for (std::size_t i = 0; i < elements.size(); ++i) {
            write(elements, i, value[i] * factor, range);
          }
        });
    if (largest >= 0x7f800000u) finite.store(false, std::memory_order_relaxed);
    if (exceeded) fits.store(false, std::memory_order_relaxed);
  });
  if (!finite.load(std::memory_order_relaxed)) *sums.not_finite = 1;
  if (!fits.load(std::memory_order_relaxed) && sums.too_large != nullptr) *sums.too_large = 1;
}

void take_owned(const Exec& exec, const OwnedJob& job, std::span<float> taken) {
  for_each_share(exec, job, [&](Share& share) {
    if (share.is_list()) {
      share.for_each_chunk(
          [&](const Chunk& chunk) {
            float* const to = taken.data() + chunk.first;
            chunk.walk(
                [&](float& element, std::size_t i) { to[i] = std::exchange(element, 0.0F); });
          },
          [&](std::uint64_t first, std::uint64_t last) {
            std::ranges::fill(taken.subspan(first, last - first), 0.0F);
          });
      return;
    }
    std::ranges::fill(taken.subspan(share.begin, share.end - share.begin), 0.0F);
    share.for_each_stretch([&](const Elements& elements, std::uint64_t j) {
      std::ranges::copy(elements.floats(), taken.data() + j);
      std::ranges::fill(elements.floats(), 0.0F);
    });
  });
}

void fill_pieces(const Exec& exec, const Placed<PlacedSpan>& pieces, float value) {
  for (const PlacedSpan& piece : pieces.host) fill(exec, piece.elements, value);
}

}  // namespace winnow::kernels::cpu
