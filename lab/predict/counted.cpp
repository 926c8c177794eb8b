// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "lab/predict/counted.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <new>

#include "comm/schedule/pass_bytes.hpp"
#include "compress/partial.hpp"

namespace winnow::comm {

namespace {

using namespace kernels;

// Memory.

constexpr std::size_t kLine = 64;  // in front of a block: how long it is

std::byte* allocate(std::size_t bytes) {
  const std::size_t all = bytes + kLine;
  void* const memory = ::mmap(nullptr, all, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // A word must not cost more than a page. Advice only.
  (void)::madvise(memory, all, MADV_NOHUGEPAGE);
  *static_cast<std::size_t*>(memory) = all;
  return static_cast<std::byte*>(memory) + kLine;
}

void release(std::byte* memory) noexcept {
  std::byte* const block = memory - kLine;
  (void)::munmap(block, *reinterpret_cast<const std::size_t*>(block));
}

// Time.

const CountedPlace& place_of(const Exec& exec) {
  return *static_cast<const CountedPlace*>(static_cast<const CountedStream*>(exec.stream));
}

void pass(const Exec& exec, double bytes) {
  place_of(exec).rank().pass(bytes);
}

template <class T>
double bytes_of(std::span<T> elements) {
  return static_cast<double>(elements.size_bytes());
}

/// Bytes that k entries of lists move, each at an element far from the last one.
double entries(std::uint64_t k) {
  return (kScattered + kCoded) * static_cast<double>(k);
}

/// Bytes that adding a term, or spreading it over elements, reads and writes beside the sum.
double term_bytes(const Term& term) {
  if (term.is_list()) return entries(term.size());
  return term.is_coded() ? bytes_of(term.coded) : bytes_of(term.value);
}

// Bodies. Messages are finished and decoded in a cache: what their lists move is counted where the
// entries come from, or go to.

constexpr auto kFree = [](const Exec&, auto...) {};
constexpr auto kNoScratch = [](const Exec&, auto...) -> std::size_t { return 0; };

void finish_message(const Exec& exec, const FinishJob& job) {
  pass(exec, bytes_of(job.message));
}

void move_owned(const Exec& exec, const OwnedJob& job) {
  pass(exec, job.values.is_list() ? entries(job.values.size())
                                  : 2 * sizeof(float) * static_cast<double>(job.values.size()) +
                                        term_bytes(job.values));
}

void write_words(const Exec&, std::span<std::byte> bytes) {
  constexpr std::size_t kMost = 4096;  // words take no more
  if (bytes.size() <= kMost) std::ranges::fill(bytes, std::byte{0});
}

void check(const Exec&, const CheckHeadersJob& job) {
  std::ranges::fill(job.status, 0);
}

/// The fewest elements whose message is as long as the one that came.
void guess_k(const Exec& exec, const ClaimedKJob& job) {
  const compress::Codings& codings = place_of(exec).codings();
  for (std::size_t m = 0; m < job.messages.size(); ++m) {
    auto header = std::bit_cast<compress::Header>(job.messages[m].expected);
    std::uint64_t low = 0, high = header.k;
    while (low < high) {
      header.k = low + (high - low) / 2;
      if (compress::most_bytes(header, codings) < job.messages[m].bytes.size()) {
        low = header.k + 1;
      } else {
        high = header.k;
      }
    }
    job.k[m] = high;
  }
}

/// Each owner takes its share of what is left, so that the shares add up.
void split(const Exec&, const SplitJob& job) {
  const Partition& partition = job.partition;
  const bool has_self = job.self < partition.owners();
  std::uint64_t k_left = job.list.index.size();
  std::uint64_t left = partition.count() - (has_self ? partition.local_count(job.self) : 0);
  std::uint32_t end = 0;
  job.begin[0] = 0;
  for (std::uint32_t owner = 0; owner < partition.owners(); ++owner) {
    const std::uint64_t count = owner == job.self ? 0 : partition.local_count(owner);
    const std::uint64_t k = left == 0 ? 0 : k_left * count / left;
    k_left -= k;
    left -= count;
    job.begin[owner + 1] = end += static_cast<std::uint32_t>(k);
  }
}

void merge_lists(const Exec& exec, const MergeJob& job) {
  const auto a = static_cast<double>(job.first.index.size());
  const auto b = static_cast<double>(job.second.index.size());
  const double both = job.count == 0 ? 0 : a * b / static_cast<double>(job.count);
  *job.size = std::min<std::uint64_t>(static_cast<std::uint64_t>(std::llround(a + b - both)),
                                      job.index.size());
  pass(exec, kCoded * (2 * a + b));
}

void sum(const Exec& exec, const OrderedSumJob& job) {
  double all = 0;
  for (const PlacedSpan& sum : job.sums.host) all += bytes_of(sum.elements.bytes());
  double bytes = job.after_accumulate ? 0 : all;
  for (const Term& term : job.terms.host) {
    bytes += term.is_list() || term.is_coded() ? term_bytes(term) : all;
  }
  pass(exec, bytes);
}

void select(const Exec& exec, std::span<const SelectSumsJob> jobs) {
  for (const SelectSumsJob& job : jobs) {
    std::uint64_t k = 0;
    for (const Term& term : job.terms.host) k += term.size();
    pass(exec, entries(k) + kCoded * static_cast<double>(job.out.index.size()));
  }
}

constexpr Bodies kCounted{
    .copy = [](const Exec& exec, std::span<std::byte> to,
               std::span<const std::byte>) { pass(exec, 2 * bytes_of(to)); },
    .place_terms = kFree,
    .add_owned =  // to residuals that encode has just passed over
    [](const Exec& exec, const OwnedJob& job) {
      pass(exec, kCoded * static_cast<double>(job.values.size()));
    },
    .bitmap_decode = kFree,
    .check_headers = check,
    .check_values = kFree,
    .checksums = kFree,
    .claimed_k = guess_k,
    .dequantize = kFree,
    .eliasfano_decode = kFree,
    .feedback_quantize =
        [](const Exec& exec, const FeedbackQuantizeJob& job) {
          pass(exec, kQuantizePass * static_cast<double>(job.partition.count()));
        },
    .feedback_select =
        [](const Exec& exec, std::span<const FeedbackSelectJob> jobs) {
          for (const FeedbackSelectJob& job : jobs) {
            pass(exec, kSelectPass * static_cast<double>(job.spans.gradient.size()) +
                           kCoded * static_cast<double>(job.index.size()));
          }
        },
    .feedback_select_scratch = kNoScratch,
    .fill = [](const Exec& exec, const Elements& elements,
               float) { pass(exec, bytes_of(elements.bytes())); },
    .merge = merge_lists,
    .ordered_sum = sum,
    .positions_of = [](const Exec& exec, const Partition&, std::uint32_t,
                       std::span<const std::uint32_t> local,
                       std::span<std::uint32_t>) { pass(exec, 2 * bytes_of(local)); },
    .put = [](const Exec& exec, std::span<float>, std::uint32_t,
              const SparseView& list) { pass(exec, entries(list.index.size())); },
    .quantize = [](const Exec& exec, const ValueFormat&, const RandomKey&, std::span<float> values,
                   std::span<std::byte>) { pass(exec, bytes_of(values)); },
    .raw32_decode = kFree,
    .finish_message = finish_message,
    .finish_bitmap = finish_message,
    .finish_eliasfano = finish_message,
    .finish_raw32 = finish_message,
    .seeded_decode = kFree,
    .select_sums = select,
    .select_sums_scratch = kNoScratch,
    .split_by_owner = split,
    .split_scratch = kNoScratch,
    .store_owned = move_owned,
    .take = [](const Exec& exec, std::span<float>, std::uint32_t,
               std::span<const std::uint32_t> index,
               std::span<float>) { pass(exec, entries(index.size())); },
    .take_owned = [](const Exec& exec, const OwnedJob& job,
                     std::span<float>) { move_owned(exec, job); },
    .write_owned = [](const Exec& exec, const OwnedJob& job,
                      const OwnedWrite&) { move_owned(exec, job); },
    .zero = write_words,
};

}  // namespace

constinit const MemorySource kCountedMemory{.allocate = allocate, .release = release};

/// A workspace's own source asks for huge pages, which thousands of ranks would have to clear.
constexpr MemorySource kListMemory{
    .allocate = [](std::size_t bytes) -> std::byte* {
      void* const memory = std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine);
      if (memory == nullptr) throw std::bad_alloc();
      return static_cast<std::byte*>(memory);
    },
    .release = [](std::byte* memory) noexcept { std::free(memory); }};

CountedPlace::CountedPlace(SimulatedTransport& rank, const compress::Codings& codings)
    : CountedStream{kCounted},
      rank_(rank),
      codings_(codings),
      lists_(kListMemory),
      data_(kCountedMemory),
      exec_{.place = kCountedPlace,
            .stream = static_cast<CountedStream*>(this),
            .workspace = &lists_,
            .device_workspace = &data_} {}

}  // namespace winnow::comm
