// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Every operation, once: the tables of bodies are made of this list. LOOPS are those that lanes
/// and threads do not help: the plain loops of their one host body are their specification. (copy
/// and place_terms, whose names have further overloads, stand beside it.)
#define WINNOW_OPERATIONS(LANES, LOOPS) \
  LANES(add_owned)                      \
  LANES(all_finite)                     \
  LANES(average)                        \
  LOOPS(bitmap_decode)                  \
  LOOPS(check_headers)                  \
  LANES(check_values)                   \
  LANES(checksums)                      \
  LOOPS(claimed_k)                      \
  LANES(correct_momentum)               \
  LANES(dequantize)                     \
  LANES(divide_by_moment)               \
  LANES(eliasfano_decode)               \
  LOOPS(end_call)                       \
  LANES(feedback_add)                   \
  LANES(feedback_keep)                  \
  LANES(feedback_quantize)              \
  LANES(feedback_select)                \
  LANES(feedback_select_scratch)        \
  LANES(feedback_threshold)             \
  LANES(feedback_threshold_scratch)     \
  LANES(fill)                           \
  LANES(fill_pieces)                    \
  LANES(from_ordered)                   \
  LOOPS(check_messages)                 \
  LANES(keep_rest)                      \
  LANES(keep_sums)                      \
  LANES(look_ahead)                     \
  LANES(merge)                          \
  LANES(narrow)                         \
  LANES(ordered_sum)                    \
  LANES(positions_of)                   \
  LANES(put)                            \
  LANES(quantize)                       \
  LOOPS(raw32_decode)                   \
  LANES(reduce)                         \
  LANES(residual_add)                   \
  LANES(scale)                          \
  LOOPS(finish_message)                 \
  LOOPS(finish_bitmap)                  \
  LANES(finish_eliasfano)               \
  LOOPS(finish_raw32)                   \
  LOOPS(seeded_decode)                  \
  LANES(select_sums)                    \
  LANES(select_sums_scratch)            \
  LANES(split_by_owner)                 \
  LANES(split_scratch)                  \
  LANES(store)                          \
  LANES(store_owned)                    \
  LANES(take)                           \
  LANES(take_owned)                     \
  LANES(to_ordered)                     \
  LANES(widen)                          \
  LANES(write_owned)                    \
  LANES(zero)
