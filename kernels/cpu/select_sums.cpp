// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/select_sums.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/arithmetic/select_bound.hpp"
#include "kernels/cpu/candidates.hpp"
#include "kernels/cpu/gallop.hpp"
#include "kernels/cpu/jobs.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/select.hpp"

// Sums and selection without a pass over what this rank owns.
//
// 1. Tile by tile of own elements: positions that the terms name are marked and summed in rank
// order in the
//    first-level cache; acc is read only there. Sums that are marked, or listed by the pass that
//    made acc, become candidates if they reach the bound.
// 2. At least k candidates: nothing else can be among the k largest, for where no term is, the sum
//    is acc, and all acc that reach the bound are listed. They are cut to exactly k.
// 3. Else the bound was too high, or there was none: all sums are gathered and selected from.

namespace winnow::kernels::cpu {

namespace {

constexpr std::size_t kUnit = Partition::kUnit;
constexpr std::size_t kTileUnits = 64;
constexpr std::size_t kTile = kTileUnits * kUnit;  // sums stay in the first-level cache

/// Calls each(bit) for the bits of a word, lowest first.
template <class Each>
void for_each_bit(std::uint64_t word, const Each& each) {
  for (; word != 0; word &= word - 1) each(static_cast<std::size_t>(std::countr_zero(word)));
}

/// The first entry of a list whose local number is `local` or more, at `from` or behind.
std::size_t entry_from(std::span<const std::uint32_t> index, std::uint64_t local,
                       std::size_t from = 0) {
  return gallop(from, index.size(), [&](std::size_t j) { return index[j] < local; });
}

/// Where the entries of each term begin that are in one piece.
using Entries = std::span<std::size_t>;

/// Moves on to the piece that begins at `local`, or back.
void move_to(std::uint64_t local, std::span<const Term> terms, Entries entries) {
  for (std::size_t r = 0; r < terms.size(); ++r) {
    const auto index = terms[r].index;
    std::size_t& entry = entries[r];
    if (entry > index.size() || (entry > 0 && index[entry - 1] >= local)) entry = 0;
    entry = entry_from(index, local, entry);
  }
}

/// One thread's share of the own elements, [begin, end) by local number.
class Range {
 public:
  Range(const OwnedSums& owned, const SelectResult& accumulated, std::span<const Term> terms,
        Entries cursors, std::uint64_t begin, std::uint64_t end)
      : owned_(owned),
        accumulated_(accumulated),
        terms_(terms),
        cursors_(cursors),
        begin_(begin),
        end_(end) {}

  struct Out {
    Candidates* candidates;
    std::span<std::uint32_t> touched;
    std::span<float> sum;
    std::size_t size = 0;   ///< touched so far
    bool overflow = false;  ///< there is no room for more
  };

  /// Sums all tiles. Returns whether every sum is finite. `entries`: of the piece.
  bool run(bool listed, std::span<const std::size_t> entries, Out& out) {
    for (std::size_t r = 0; r < terms_.size(); ++r) {
      cursors_[r] = entry_from(terms_[r].index, begin_, entries[r]);
    }
    const OwnUnits& own = owned_.own;
    const auto list = own.index.first(listed ? accumulated_.listed : 0);
    next_listed_ = entry_from(list, begin_);
    bool finite = true;
    for (std::uint64_t at = begin_; at < end_; at += kTile) {
      const std::uint64_t stop = std::min(at + kTile, end_);
      mark(at, stop, list);
      add(at, stop);
      finite = emit(at, out) && finite;
    }
    return finite;
  }

 private:
  /// Marks what the terms name and what is listed, and begins their sums.
  void mark(std::uint64_t base, std::uint64_t stop, std::span<const std::uint32_t> list) {
    const OwnUnits& own = owned_.own;
    const std::uint64_t first_group = base / kUnit;
    units_ = (stop - base + kUnit - 1) / kUnit;
    for (std::size_t u = 0; u < units_; ++u) {
      const std::uint64_t unit = own.partition->unit_of(own.self, first_group + u);
      acc_[u] = owned_.residual.data() + (unit * kUnit - own.base);
    }
    std::fill_n(touched_.begin(), units_, 0);
    std::fill_n(listed_.begin(), units_, 0);
    order_size_ = 0;
    for (std::size_t r = 0; r < terms_.size(); ++r) {
      if (r == own.self) continue;
      const auto index = terms_[r].index;
      for (std::size_t j = cursors_[r]; j < index.size() && index[j] < stop; ++j) {
        const std::size_t i = index[j] - base;
        std::uint64_t& word = touched_[i / kUnit];
        order_[order_size_] = static_cast<std::uint32_t>(i);
        order_size_ += ~word >> i % kUnit & 1;
        word |= std::uint64_t{1} << i % kUnit;
        sums_[i] = 0;
        __builtin_prefetch(acc_[i / kUnit] + i % kUnit);
      }
    }
    for (; next_listed_ < list.size() && list[next_listed_] < stop; ++next_listed_) {
      const std::size_t i = list[next_listed_] - base;
      listed_[i / kUnit] |= std::uint64_t{1} << i % kUnit;
      if ((touched_[i / kUnit] >> i % kUnit & 1) == 0) sums_[i] = own.value[next_listed_];
    }
  }

  /// Sums what is marked, in rank order.
  void add(std::uint64_t base, std::uint64_t stop) {
    for (std::size_t r = 0; r < terms_.size(); ++r) {
      if (r == owned_.own.self) {
        for (std::size_t j = 0; j < order_size_; ++j) {
          const std::size_t i = order_[j];
          sums_[i] += acc_[i / kUnit][i % kUnit];
        }
        continue;
      }
      const auto index = terms_[r].index;
      std::size_t j = cursors_[r];
      for (; j < index.size() && index[j] < stop; ++j) sums_[index[j] - base] += terms_[r].value[j];
      cursors_[r] = j;
    }
  }

  /// Writes the tile's sums and candidates; whether all sums are finite.
  bool emit(std::uint64_t base, Out& out) {
    const std::uint32_t bound = magnitude(accumulated_.listed_by);
    std::uint32_t largest = 0;
    Candidates& candidates = *out.candidates;
    std::size_t touched = 0, reaching = 0;
    for (std::size_t u = 0; u < units_; ++u) {
      for_each_bit(touched_[u] | listed_[u], [&](std::size_t bit) {
        const std::size_t i = u * kUnit + bit;
        const std::uint32_t size = magnitude(sums_[i]);
        const auto named = static_cast<std::uint32_t>(touched_[u] >> bit & 1);
        largest = std::max(largest, size);
        order_[touched] = static_cast<std::uint32_t>(i);
        touched += named;
        reaching_[reaching] = static_cast<std::uint32_t>(i);
        reaching += size >= bound;
      });
    }
    out.overflow = out.overflow || touched > out.touched.size() - out.size;
    if (out.overflow) touched = reaching = 0;
    for (std::size_t j = 0; j < touched; ++j) {
      out.touched[out.size + j] = static_cast<std::uint32_t>(base) + order_[j];
      out.sum[out.size + j] = sums_[order_[j]];
    }
    out.size += touched;
    for (std::size_t j = 0; j < reaching; ++j) {
      candidates.index[candidates.size + j] = static_cast<std::uint32_t>(base) + reaching_[j];
      candidates.value[candidates.size + j] = sums_[reaching_[j]];
    }
    candidates.size += reaching;
    return largest < magnitude(std::numeric_limits<float>::infinity());
  }

  const OwnedSums& owned_;
  const SelectResult& accumulated_;
  std::span<const Term> terms_;
  Entries cursors_;  // of each term: the first entry not yet added
  std::uint64_t begin_, end_;
  std::size_t next_listed_ = 0;
  std::size_t units_ = 0;  // of the tile
  // The marks of the tile: a bit for each element that terms name, and for each that is listed;
  // where the acc of each unit lies; the sums of what is marked.
  std::array<std::uint64_t, kTileUnits> touched_, listed_;
  std::array<const float*, kTileUnits> acc_;
  std::array<float, kTile> sums_;  // of the others: anything
  // Lists of the tile's elements, with a place behind the last. No loop over them branches on data,
  // so their cache misses overlap.
  std::array<std::uint32_t, kTile + 1> order_, reaching_;
  std::size_t order_size_ = 0;
};

/// Selects from all sums: acc, but where something was added.
void select_from_all(const Exec& exec, const SelectSumsJob& job) {
  const OwnedSums& owned = job.owned;
  const SumLists& out = job.out;
  const OwnUnits& own = owned.own;
  const Workspace::Scope scope(*exec.workspace);
  const auto sums = exec.workspace->take<float>(owned.count);
  const std::uint64_t first_group = owned.begin / kUnit;
  for (std::uint64_t at = 0; at < owned.count; at += kUnit) {
    const std::uint64_t unit = own.partition->unit_of(own.self, first_group + at / kUnit);
    std::copy_n(owned.residual.data() + (unit * kUnit - own.base),
                std::min<std::uint64_t>(kUnit, owned.count - at), sums.data() + at);
  }
  for (std::size_t j = 0; j < *job.touched_count; ++j) {
    sums[out.touched[j] - owned.begin] = out.sum[j];
  }
  SelectBound sampled;
  select(exec, sums, sampled, out.index, out.value);
  for (std::uint32_t& local : out.index) local += static_cast<std::uint32_t>(owned.begin);
}

/// A list that did not find room lacks what may matter.
bool is_listed(const OwnedSums& owned, const SelectResult& accumulated) {
  return accumulated.listed <= owned.own.index.size();
}

/// The terms, with their values decoded where they are coded.
std::span<const Term> decode(const Exec& exec, std::span<const Term> terms) {
  if (std::ranges::none_of(terms, &Term::is_coded)) return terms;
  const auto decoded = exec.workspace->take<Term>(terms.size());
  for (std::size_t r = 0; r < terms.size(); ++r) {
    decoded[r] = terms[r];
    if (!terms[r].is_coded()) continue;
    const auto value = exec.workspace->take<float>(terms[r].count);
    dequantize(exec, terms[r].format, terms[r].count, terms[r].coded, 0, value);
    decoded[r] = {.index = terms[r].index, .value = value};
  }
  return decoded;
}

/// Sums what terms name: job.out lists it, and candidates are the sums among them and what is
/// listed that reach the bound. Returns a result without candidates. `entries`: of any piece
/// before.
template <class Job>
SelectResult add(const Exec& exec, const Job& job, Entries entries, std::span<Candidates> parts) {
  const OwnedSums& owned = job.owned;
  const OwnUnits& own = owned.own;
  const SumLists& out = job.out;
  Workspace& workspace = *exec.workspace;
  const std::span<const Term> terms = decode(exec, job.terms.host);
  move_to(owned.begin, terms, entries);
  const bool listed = is_listed(owned, *job.accumulated);
  const Ranges ranges(exec.threads, owned.count);
  const auto outs = workspace.take<Range::Out>(ranges.size());
  const auto cursors = workspace.take<std::size_t>(ranges.size() * terms.size());
  const std::size_t room = own.index.size() + owned.most + Candidates::kSlack;
  const auto index = workspace.take<std::uint32_t>(room);
  const auto value = workspace.take<float>(room);

  // The output of each range begins no earlier than the ranges before it can fill.
  const auto begin_of = [&](std::size_t p) { return owned.begin + ranges.begin(p); };
  for (std::size_t p = 0; p < ranges.size(); ++p) {
    std::size_t named = 0;  // before this range: none before the first
    for (std::size_t r = 0; p > 0 && r < terms.size(); ++r) {
      if (r == own.self) continue;
      named += entry_from(terms[r].index, begin_of(p), entries[r]) - entries[r];
    }
    const std::size_t touched = std::min({named, ranges.begin(p), out.touched.size()});
    const std::size_t before =
        listed ? entry_from(own.index.first(job.accumulated->listed), begin_of(p)) : std::size_t{0};
    parts[p].index = index.data() + before + touched;
    parts[p].value = value.data() + before + touched;
    parts[p].size = parts[p].dropped = 0;
    outs[p] = {&parts[p], out.touched.subspan(touched), out.sum.subspan(touched)};
  }

  std::atomic<bool> finite{true};
  for_each_part(ranges.size(), [&](std::size_t p) {
    Range range(owned, *job.accumulated, terms, cursors.subspan(p * terms.size(), terms.size()),
                begin_of(p), owned.begin + ranges.end(p));
    if (!range.run(listed, entries, outs[p])) finite.store(false, std::memory_order_relaxed);
  });
  std::size_t touched = 0;
  bool overflow = false;
  for (const Range::Out& part : outs) {
    std::copy_n(part.touched.data(), part.size, out.touched.data() + touched);
    std::copy_n(part.sum.data(), part.size, out.sum.data() + touched);
    touched += part.size;
    overflow = overflow || part.overflow;
  }
  *job.touched_count = touched;
  return {.finite = finite, .candidates = 0, .passes = 1, .overflow = overflow};
}

/// For the most terms that a job has; at their beginnings.
template <class Job>
Entries take_entries(const Exec& exec, std::span<const Job> jobs) {
  std::size_t most = 0;
  for (const Job& job : jobs) most = std::max(most, job.terms.host.size());
  const Entries entries = exec.workspace->take<std::size_t>(most);
  std::ranges::fill(entries, std::size_t{0});
  return entries;
}

struct SelectSumsKind {
  using Job = SelectSumsJob;
  const Exec& exec;
  Entries entries;

  SelectSumsKind(const Exec& with, std::span<const Job> jobs)
      : exec(with), entries(take_entries(with, jobs)) {}

  static std::size_t elements(const Job& job) { return job.owned.count; }

  void fetch(const Job& job) const {
    constexpr std::size_t kMost = 64;  // entries of a term
    const OwnedSums& owned = job.owned;
    const OwnUnits& own = owned.own;
    __builtin_prefetch(job.state, 1);
    __builtin_prefetch(own.index.data());
    __builtin_prefetch(own.value.data());
    for (std::size_t r = 0; r < job.terms.host.size(); ++r) {
      if (r == own.self) continue;
      const auto index = job.terms.host[r].index;
      std::size_t j = entry_from(index, owned.begin, std::min(entries[r], index.size()));
      const std::size_t end = std::min(j + kMost, index.size());
      for (; j < end && index[j] < owned.begin + owned.count; ++j) {
        __builtin_prefetch(owned.residual.data() +
                           (own.partition->position(own.self, index[j]) - own.base));
      }
    }
  }

  void run(const Job& job) const {
    const OwnedSums& owned = job.owned;
    const SumLists& out = job.out;
    const std::size_t k = out.index.size();
    const Workspace::Scope scope(*exec.workspace);
    const auto parts = exec.workspace->take<Candidates>(Ranges(exec.threads, owned.count).size());
    SelectResult& result = *job.result;
    result = add(exec, job, entries, parts);
    if (!result.finite || result.overflow) {
      std::iota(out.index.begin(), out.index.end(), static_cast<std::uint32_t>(owned.begin));
      std::ranges::fill(out.value, 0.0F);
      return;
    }

    const bool listed = is_listed(owned, *job.accumulated);
    result.candidates = listed ? held(parts) : job.accumulated->listed;
    float kth = std::numeric_limits<float>::infinity();
    if (listed && result.candidates >= k) {
      kth = write_largest(*exec.workspace, parts, nullptr, out.index, out.value);
    } else {
      result.passes = 2;
      select_from_all(exec, job);
      for (const float sum : out.value) kth = std::min(kth, std::fabs(sum));
    }
    learn_bound(*job.state, static_cast<std::uint32_t>(k), kth, result.candidates);
  }

  /// 8 bytes for each place of own.index and of `most`; where the bound was not good also all sums,
  /// what `select` takes of them, and its sample; terms that are coded.
  static std::size_t scratch(const Exec& exec, const Job& job) {
    const OwnedSums& owned = job.owned;
    const std::size_t k = job.out.index.size();
    constexpr std::size_t kSample = std::size_t{256} << 10, kOfThread = std::size_t{32} << 10;
    constexpr std::size_t kSpare = 4096;  // beside 2k
    const auto threads = static_cast<std::size_t>(std::max(exec.threads, 1));
    std::size_t of_terms = 0;
    for (const Term& term : job.terms.host) {
      of_terms += 2 * sizeof term + (term.is_coded() ? sizeof(float) * term.count : 0);
    }
    const std::size_t candidates = owned.own.index.size() + owned.most + Candidates::kSlack +
                                   std::min<std::size_t>(owned.count, threads * (2 * k + kSpare));
    return sizeof(float) * owned.count + (sizeof(float) + sizeof(std::uint32_t)) * candidates +
           of_terms + kSample + threads * kOfThread;
  }
};

}  // namespace

void select_sums(const Exec& exec, std::span<const SelectSumsJob> jobs) {
  JobGroups<SelectSumsKind>(exec, jobs).run();
}

std::size_t select_sums_scratch(const Exec& exec, std::span<const SelectSumsJob> jobs) {
  return JobGroups<SelectSumsKind>(exec, jobs).scratch();
}

/// All that matters is listed, so candidates are what is kept.
void keep_sums(const Exec& exec, const KeepSumsJob& job) {
  const Workspace::Scope scope(*exec.workspace);
  const auto parts = exec.workspace->take<Candidates>(Ranges(exec.threads, job.owned.count).size());
  const Entries entries = take_entries(exec, std::span(&job, 1));
  *job.result = add(exec, job, entries, parts);
  std::uint64_t end = *job.kept;
  for (const Candidates& part : parts) {
    if (!job.result->finite) break;
    std::copy_n(part.index, part.size, job.out.index.data() + end);
    std::copy_n(part.value, part.size, job.out.value.data() + end);
    end += part.size;
  }
  job.result->candidates = end - *job.kept;
  *job.kept = end;
}

}  // namespace winnow::kernels::cpu
