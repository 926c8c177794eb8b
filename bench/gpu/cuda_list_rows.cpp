// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu/cuda_inputs.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/finish_message.hpp"
#include "kernels/index_coding.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/merge.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/split.hpp"

namespace winnow::bench {

namespace {

using Rows = std::vector<CudaRow>;
using kernels::Term;

/// Lists of 8 ranks that lie evenly and rarely meet, with float32 and with int4 values.
struct Lists {
  static constexpr std::uint32_t kRanks = 8;

  explicit Lists(const CudaInputs& in)
      : k(in.k),
        index(kRanks * k),
        value(kRanks * k),
        coded_bytes(kernels::value_bytes(int4(), k)),
        coded(kRanks * coded_bytes) {
    std::vector<std::uint32_t> host(k);
    const std::size_t spacing = in.count / k;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      for (std::size_t j = 0; j < k; ++j) {
        host[j] = static_cast<std::uint32_t>(spacing * j + r % spacing);
      }
      kernels::cuda::enqueue_copy(index.span().subspan(r * k, k), host, in.stream);
    }
    fill(value.span(), kRanks, in.stream);
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      kernels::quantize(in.exec(), int4(), {}, value.span().subspan(r * k, k), message(r));
    }
    fill(value.span(), kRanks, in.stream);  // the coding leaves errors there
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      terms.push_back({.index = list(r).index, .value = list(r).value});
      coded_terms.push_back(
          {.index = list(r).index, .format = int4(), .coded = message(r), .count = k});
    }
  }

  static kernels::ValueFormat int4() {
    const auto codings = kernels::value_codings();
    const auto found = std::ranges::find(codings, "int4", &kernels::ValueCoding::name);
    return {&*found, found->default_block};
  }
  kernels::SparseView list(std::uint32_t rank) const {
    return {index.span().subspan(rank * k, k), value.span().subspan(rank * k, k)};
  }

  /// The rank's values, coded in int4.
  std::span<std::byte> message(std::uint32_t rank) const {
    return coded.span().subspan(rank * coded_bytes, coded_bytes);
  }

  std::size_t k;
  DeviceArray<std::uint32_t> index;
  DeviceArray<float> value;
  std::size_t coded_bytes;  ///< per rank
  DeviceArray<std::byte> coded;
  std::vector<Term> terms, coded_terms;
};

using ListsRef = std::shared_ptr<const Lists>;

/// Messages of indices alone, and room to decode them.
struct Indices {
  explicit Indices(const CudaInputs& in)
      : eliasfano(kHeader + kernels::eliasfano_shape(in.count, in.k).bytes()),
        raw32(kHeader + kernels::raw32_bytes(in.k)),
        bitmap(kHeader + kernels::bitmap_bytes(in.count)),
        index(in.k) {}
  static constexpr std::size_t kHeader = kernels::kHeaderBytes;
  DeviceArray<std::byte> eliasfano, raw32, bitmap;
  DeviceArray<std::uint32_t> index, refused{1};
  Workspace workspace{kernels::cuda::kDeviceMemory};
};

/// Rows of finishing and decoding. The decoders of eliasfano and bitmap clear their scratch.
void add_indices(const CudaInputs& in, const ListsRef& lists, Rows& rows) {
  struct Coding {
    const char* name;
    DeviceArray<std::byte> Indices::*message;
    decltype(&kernels::finish_raw32) finish;
    decltype(&kernels::raw32_decode) decode;
  };
  const Coding codings[] = {
      {"eliasfano", &Indices::eliasfano, kernels::finish_eliasfano, kernels::eliasfano_decode},
      {"raw32", &Indices::raw32, kernels::finish_raw32, kernels::raw32_decode},
      {"bitmap", &Indices::bitmap, kernels::finish_bitmap, kernels::bitmap_decode},
  };
  const auto room = std::make_shared<Indices>(in);
  for (const Coding& coding : codings) {
    const std::span<std::byte> message = (*room.*coding.message).span();
    const auto bytes = static_cast<double>(message.size() + 4 * in.k);
    const std::string name = coding.name;
    rows.push_back({"finish, " + name, bytes, [&in, lists, room, message, coding](auto) {
                      coding.finish(in.exec(),
                                    {.message = message,
                                     .layout = {.flags_at = 6, .poison = 1, .checksum_at = 56},
                                     .count = in.count,
                                     .index = lists->list(0).index});
                    }});
    rows.push_back({name + "_decode", bytes, [&in, room, message, coding](auto) {
                      Exec exec = in.exec();
                      exec.device_workspace = &room->workspace;
                      const kernels::DecodeJob job{in.count, message.subspan(Indices::kHeader),
                                                   room->index.span(), room->refused.data()};
                      coding.decode(exec, {&job, 1});
                    }});
  }
}

/// The output of split_by_owner.
struct Split {
  static constexpr std::uint32_t kOwners = 8;

  explicit Split(const CudaInputs& in)
      : partition(kOwners, in.count), local(in.k), begin(kOwners + 1), value(in.k) {}
  kernels::Partition partition;
  DeviceArray<std::uint32_t> local, begin;
  DeviceArray<float> value;
};

/// A split clears and writes the table of units, and its sums read and write the table: 4 bytes a
/// unit each time. The split reads the index twice.
void add_split(const CudaInputs& in, const ListsRef& lists, Rows& rows) {
  const auto room = std::make_shared<Split>(in);
  const auto bytes = static_cast<double>(20 * in.k + 16 * room->partition.units());
  rows.push_back({"split_by_owner of 8", bytes, [&in, lists, room](auto) {
                    kernels::split_by_owner(in.exec(), {.list = lists->list(0),
                                                        .partition = room->partition,
                                                        .local = room->local.span(),
                                                        .value = room->value.span(),
                                                        .begin = room->begin.span()});
                  }});
}

/// Room for the union of two lists.
struct Union {
  explicit Union(const CudaInputs& in) : index(2 * in.k), value(2 * in.k), size(1) {}
  DeviceArray<std::uint32_t> index;
  DeviceArray<float> value;
  DeviceArray<std::uint64_t> size;
};

void add_merge(const CudaInputs& in, const ListsRef& lists, Rows& rows) {
  const auto room = std::make_shared<Union>(in);
  rows.push_back({"merge of 2", static_cast<double>(32 * in.k), [&in, lists, room](auto) {
                    kernels::merge(in.exec(), {.first = lists->list(0),
                                               .second = lists->list(1),
                                               .index = room->index.span(),
                                               .value = room->value.span(),
                                               .size = room->size.data()});
                  }});
}

void add_sums(const CudaInputs& in, const ListsRef& lists, Rows& rows) {
  const std::size_t sum = in.count * sizeof(float);
  const std::size_t plain = 8 * in.k, coded = 4 * in.k + lists->coded_bytes;
  for (const bool is_coded : {false, true}) {
    const std::span<const Term> terms = is_coded ? lists->coded_terms : lists->terms;
    rows.push_back({is_coded ? "ordered_sum of 8, int4" : "ordered_sum of 8",
                    static_cast<double>(Lists::kRanks * (is_coded ? coded : plain) + sum),
                    [&in, lists, terms](std::size_t round) {
                      const auto& s = in.set(round);
                      kernels::ordered_sum(in.exec(), {.terms = {terms},
                                                       .sums = kernels::alone({s.target.span()}),
                                                       .not_finite = s.not_finite.data()});
                    }});
  }
}

}  // namespace

void add_list_rows(const CudaInputs& inputs, std::vector<CudaRow>& rows) {
  const auto lists = std::make_shared<const Lists>(inputs);
  add_indices(inputs, lists, rows);
  add_split(inputs, lists, rows);
  add_merge(inputs, lists, rows);
  add_sums(inputs, lists, rows);
}

}  // namespace winnow::bench
