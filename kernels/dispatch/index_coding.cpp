// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/index_coding.hpp"

#include <string>

#include "kernels/cuda/ones_tiles.hpp"
#include "kernels/dispatch/bodies.hpp"
#include "kernels/dispatch/expect_message.hpp"

namespace winnow::kernels {

namespace {

/// bytes_of(job) is what the coding has of a part.
template <class BytesOf>
void expect_parts(std::span<const DecodeJob> jobs, const BytesOf& bytes_of) {
  for (const DecodeJob& job : jobs) {
    WINNOW_EXPECTS(job.count <= std::uint64_t{1} << 32 && job.index.size() <= job.count,
                   "an index part names at most count <= 2^32 positions; got count " +
                       std::to_string(job.count) + ", k " + std::to_string(job.index.size()));
    const std::uint64_t bytes = bytes_of(job);
    WINNOW_EXPECTS(job.in.size() == bytes, "these indices take " + std::to_string(bytes) +
                                               " bytes, not " + std::to_string(job.in.size()));
    expect_word_aligned(job.in);
    WINNOW_EXPECTS(job.refused != nullptr, "a decoder of indices needs a word for refused");
  }
}

}  // namespace

void raw32_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  expect_parts(jobs, [](const DecodeJob& job) { return raw32_bytes(job.index.size()); });
  dispatch(exec, &Bodies::raw32_decode, jobs);
}

void eliasfano_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  expect_parts(jobs, [](const DecodeJob& job) {
    return eliasfano_shape(job.count, job.index.size()).bytes();
  });
  dispatch(exec, &Bodies::eliasfano_decode, jobs);
}

void bitmap_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  expect_parts(jobs, [](const DecodeJob& job) { return bitmap_bytes(job.count); });
  dispatch(exec, &Bodies::bitmap_decode, jobs);
}

void seeded_decode(const Exec& exec, std::span<const DecodeJob> jobs) {
  for (const DecodeJob& job : jobs) {
    WINNOW_EXPECTS(job.count <= std::uint64_t{1} << 32 && job.index.size() <= job.count,
                   "seeded_decode draws at most count <= 2^32 indices; got count " +
                       std::to_string(job.count) + ", k " + std::to_string(job.index.size()));
  }
  dispatch(exec, &Bodies::seeded_decode, jobs);
}

/// The longest row of ones is Elias-Fano's without low bits, for k = count.
std::size_t decode_scratch(const Exec& exec, std::uint64_t count) {
  return exec.place == Place::cuda ? cuda::ones_scratch(count / 32 + 1) : 0;
}

}  // namespace winnow::kernels
