// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "comm/transport/simulated/simulated.hpp"
#include "compress/compressor.hpp"

namespace winnow::comm {

/// Address space that is never touched, for messages and tensors of Payload::sizes. They all
/// overlap.
class Nowhere {
 public:
  /// Throws UsageError if there is not that much address space.
  explicit Nowhere(std::size_t bytes);
  ~Nowhere();
  Nowhere(const Nowhere&) = delete;
  Nowhere& operator=(const Nowhere&) = delete;

  std::span<std::byte> bytes(std::size_t count) const;
  std::span<float> floats(std::size_t count) const;

 private:
  std::byte* memory_;
  std::size_t size_;
};

/// A stand-in compressor for runs where only sizes travel. Messages have the sizes that the real
/// one would give them for independent, evenly spread supports, and its passes over memory take
/// virtual time.
class SizeOnly final : public compress::Compressor {
 public:
  /// `specification` as in Options::compressor. The others must outlive it.
  SizeOnly(std::string_view specification, SimulatedTransport& rank, const Nowhere& nowhere)
      : Compressor(*compress::make_compressor(specification)), rank_(rank), nowhere_(nowhere) {}

  void encode(const Exec& exec, const compress::EncodeJob& job,
              compress::EncodeResult& out) const override;
  std::span<std::byte> encode_sums(const Exec& exec, const compress::EncodeJob& job,
                                   std::span<const compress::MessageView> contributions,
                                   compress::Owned& owned, std::span<std::byte> out) const override;
  void select(const Exec& exec, const compress::EncodeJob& job,
              std::span<std::byte> out) const override;
  void take(const Exec& exec, const compress::EncodeJob& job, const compress::Owned& owned,
            const compress::Taken& taken, std::span<std::byte> out) const override;
  void add(const Exec& exec, const compress::EncodeJob& job,
           std::span<const compress::MessageView> terms,
           const compress::Addition& out) const override;
  std::span<std::byte> take_buffer(const Exec& exec, std::size_t bytes) const override;
  std::uint16_t open_all(const Exec& exec, std::span<const compress::Incoming> incoming,
                         std::span<compress::MessageView> views,
                         kernels::CallStatus* call) const override;
  compress::MessageView merge(const Exec& exec, const compress::Header& header,
                              const compress::MessageView& first,
                              const compress::MessageView& second) const override;
  void pack(const Exec& exec, compress::MessageView& sum, std::span<std::byte> out) const override;
  void announce(const Exec&, const compress::Header&, std::span<std::byte>) const override {}
  void sum_gradients(const Exec& exec, std::span<const kernels::Term> gradients,
                     std::span<float> sum) const override;
  bool write_outcome(const Exec& exec, const compress::Part& part,
                     const compress::Outcome& outcome) const override;

  /// Takes the time of writing `messages` with `k` elements in all into the elements.
  void write(std::uint64_t count, std::uint64_t k) const;
  /// Takes the time of writing a sum of all elements.
  void write_sum(std::uint64_t count) const;

 private:
  compress::MessageView open_one(std::span<const std::byte> message,
                                 const compress::Header& header) const;
  double entries(std::uint64_t k) const;

  SimulatedTransport& rank_;
  const Nowhere& nowhere_;
};

}  // namespace winnow::comm
