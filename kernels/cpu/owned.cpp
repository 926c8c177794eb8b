// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/owned.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "kernels/cpu/parallel.hpp"

// Threads share out the values: each value is of another element, so they never meet.
//
//   stretch  of values for each local number: elements of one piece that follow each other there
//            and by local number, within one unit or, with one owner, as long as the piece
//   chunk    of a list: entries whose elements, each in a cache line of its own, are fetched
//            together
//   tile     of coded values: decoded together

namespace winnow::kernels::cpu {

namespace {

constexpr std::uint64_t kUnit = Partition::kUnit;
constexpr std::size_t kChunk = 128, kTile = 4096;

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

/// Values [begin, end) of a job: those of one thread. `begin` is a multiple of 64.
struct Share {
  const Exec& exec;
  const OwnedJob& job;
  std::uint64_t begin, end;

  bool is_list() const { return !job.values.index.empty(); }

  /// Calls each(elements, first value, how many) for the stretches.
  template <class Each>
  void for_each_stretch(const Each& each) const {
    const Partition& partition = job.partition;
    const std::uint64_t owners = partition.owners();
    for (const PlacedSpan& piece : job.pieces.host) {
      float* const elements = piece.elements.data();
      const std::uint64_t from = piece.base, to = from + piece.elements.size();
      if (owners == 1) {
        const std::uint64_t first = std::max(from, begin), last = std::min(to, end);
        if (first < last) each(elements + (first - from), first, last - first);
        continue;
      }
      for (std::uint64_t group = std::max(from / owners, begin) / kUnit;; ++group) {
        const std::uint64_t unit = partition.unit_of(job.owner, group) * kUnit;
        const std::uint64_t local = group * kUnit;
        if (local * owners >= to || local >= end) break;
        if (unit < from || unit >= to) continue;
        each(elements + (unit - from), local, std::min({kUnit, to - unit, end - local}));
      }
    }
  }

  /// Calls each(elements, first value) for the chunks; an element is null where a position is of
  /// no piece.
  template <class Each>
  void for_each_chunk(const Each& each) const {
    std::array<float*, kChunk> place;
    const std::uint32_t* const index = job.values.index.data();
    auto piece = job.pieces.host.begin();
    std::uint64_t group = std::numeric_limits<std::uint64_t>::max(), unit = 0;
    for (std::uint64_t j = begin; j < end; j += kChunk) {
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(kChunk, end - j));
      for (std::size_t i = 0; i < size; ++i) {
        const std::uint64_t local = index[j + i];
        if (local / kUnit != group) {
          group = local / kUnit;
          unit = job.partition.unit_of(job.owner, group) * kUnit;
        }
        const std::uint64_t position = unit + local % kUnit;
        while (piece != job.pieces.host.end() && position >= piece->base + piece->elements.size()) {
          ++piece;
        }
        const bool is_there = piece != job.pieces.host.end() && position >= piece->base;
        place[i] = is_there ? piece->elements.data() + (position - piece->base) : nullptr;
        __builtin_prefetch(place[i], 1);
      }
      each(std::span<float* const>(place.data(), size), j);
    }
  }

  /// Calls each(element, value) for all values that go somewhere.
  template <class Each>
  void for_each(const Each& each) const {
    Values values(exec, job.values, end);
    if (is_list()) {
      for_each_chunk([&](std::span<float* const> place, std::uint64_t j) {
        const float* const value = values.from(j, place.size()).data();
        for (std::size_t i = 0; i < place.size(); ++i) {
          if (place[i] != nullptr) each(*place[i], value[i]);
        }
      });
      return;
    }
    for_each_stretch([&](float* elements, std::uint64_t j, std::uint64_t size) {
      for (std::uint64_t at = 0; at < size;) {
        const auto value = values.from(j + at, std::min(kUnit, size - at));
        const std::uint64_t here = std::min<std::uint64_t>(value.size(), size - at);
        for (std::uint64_t i = 0; i < here; ++i) each(elements[at + i], value[i]);
        at += here;
      }
    });
  }
};

/// Runs body(share) in each thread.
template <class Body>
void for_each_share(const Exec& exec, const OwnedJob& job, const Body& body) {
  for_each_range(exec.threads, job.size(), [&](std::size_t begin, std::size_t end) {
    body(Share{exec, job, begin, end});
  });
}

}  // namespace

void add_owned(const Exec& exec, const OwnedJob& job) {
  for_each_share(exec, job, [](const Share& share) {
    share.for_each([](float& element, float value) { element += value; });
  });
}

void store_owned(const Exec& exec, const OwnedJob& job) {
  for_each_share(exec, job, [](const Share& share) {
    share.for_each([](float& element, float value) {
      if (std::isfinite(value)) element = value;
    });
  });
}

void write_owned(const Exec& exec, const OwnedJob& job, float factor, std::uint32_t* not_finite) {
  std::atomic<bool> finite{true};
  for_each_share(exec, job, [&](const Share& share) {
    std::uint32_t largest = 0;  // magnitude
    share.for_each([&](float& element, float value) {
      element = value * factor;
      largest = std::max(largest, std::bit_cast<std::uint32_t>(element) & 0x7fffffffu);
    });
    if (largest >= 0x7f800000u) finite.store(false, std::memory_order_relaxed);
  });
  if (!finite.load(std::memory_order_relaxed)) *not_finite = 1;
}

void take_owned(const Exec& exec, const OwnedJob& job, std::span<float> taken) {
  for_each_share(exec, job, [&](const Share& share) {
    if (share.is_list()) {
      share.for_each_chunk([&](std::span<float* const> place, std::uint64_t j) {
        for (std::size_t i = 0; i < place.size(); ++i) {
          taken[j + i] = place[i] != nullptr ? std::exchange(*place[i], 0.0F) : 0;
        }
      });
      return;
    }
    std::ranges::fill(taken.subspan(share.begin, share.end - share.begin), 0.0F);
    share.for_each_stretch([&](float* elements, std::uint64_t j, std::uint64_t size) {
      std::copy_n(elements, size, taken.data() + j);
      std::fill_n(elements, size, 0.0F);
    });
  });
}

}  // namespace winnow::kernels::cpu
