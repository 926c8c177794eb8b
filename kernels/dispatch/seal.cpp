// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seal.hpp"

#include "kernels/dispatch/bodies.hpp"
#include "kernels/dispatch/expect_message.hpp"
#include "kernels/index_coding.hpp"

namespace winnow::kernels {

namespace {

void expect_job(const SealJob& job, std::uint64_t index_bytes) {
  expect_header(job.message);
  expect_layout(job.layout);
  const std::size_t bytes = job.message.size();
  WINNOW_EXPECTS(bytes % 4 == 0, "checksum of bytes that are not whole 32-bit words");
  WINNOW_EXPECTS(bytes - kHeaderBytes >= index_bytes,
                 "a message is no shorter than its header and its indices");
  WINNOW_EXPECTS(job.padding < 8 && (job.padding == 0 || bytes % 8 == 0),
                 "padding ends with a word of 8 bytes");
}

void expect_indices(const SealJob& job, std::uint64_t index_bytes) {
  expect_job(job, index_bytes);
  WINNOW_EXPECTS(job.count <= std::uint64_t{1} << 32 && job.index.size() <= job.count,
                 "an index part names at most count <= 2^32 positions");
}

}  // namespace

void seal(const Exec& exec, const SealJob& job) {
  expect_job(job, 0);
  dispatch(exec, &Bodies::seal, job);
}

void seal_raw32(const Exec& exec, const SealJob& job) {
  expect_indices(job, raw32_bytes(job.index.size()));
  dispatch(exec, &Bodies::seal_raw32, job);
}

void seal_eliasfano(const Exec& exec, const SealJob& job) {
  expect_indices(job, eliasfano_shape(job.count, job.index.size()).bytes());
  dispatch(exec, &Bodies::seal_eliasfano, job);
}

void seal_bitmap(const Exec& exec, const SealJob& job) {
  expect_indices(job, bitmap_bytes(job.count));
  dispatch(exec, &Bodies::seal_bitmap, job);
}

}  // namespace winnow::kernels
