// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace cuda {
decltype(kernels::add_owned) add_owned;
decltype(kernels::all_finite) all_finite;
decltype(kernels::average) average;
decltype(kernels::bitmap_decode) bitmap_decode;
decltype(kernels::check_headers) check_headers;
decltype(kernels::check_values) check_values;
decltype(kernels::checksums) checksums;
decltype(kernels::claimed_k) claimed_k;
void copy(const Exec&, std::span<std::byte>, std::span<const std::byte>);
decltype(kernels::dequantize) dequantize;
decltype(kernels::eliasfano_decode) eliasfano_decode;
decltype(kernels::end_call) end_call;
decltype(kernels::feedback_add) feedback_add;
decltype(kernels::feedback_keep) feedback_keep;
decltype(kernels::feedback_quantize) feedback_quantize;
decltype(kernels::feedback_select) feedback_select;
decltype(kernels::feedback_select_scratch) feedback_select_scratch;
decltype(kernels::feedback_threshold) feedback_threshold;
decltype(kernels::feedback_threshold_scratch) feedback_threshold_scratch;
decltype(kernels::fill) fill;
decltype(kernels::fits) fits;
decltype(kernels::from_ordered) from_ordered;
decltype(kernels::judge_messages) judge_messages;
decltype(kernels::keep_sums) keep_sums;
decltype(kernels::merge) merge;
decltype(kernels::narrow) narrow;
decltype(kernels::ordered_sum) ordered_sum;
void place_terms(const Exec&, PlacedTerms&, std::uint64_t);
decltype(kernels::positions_of) positions_of;
decltype(kernels::put) put;
decltype(kernels::quantize) quantize;
decltype(kernels::raw32_decode) raw32_decode;
decltype(kernels::reduce) reduce;
decltype(kernels::residual_add) residual_add;
decltype(kernels::scale) scale;
decltype(kernels::seal) seal;
decltype(kernels::seal_bitmap) seal_bitmap;
decltype(kernels::seal_eliasfano) seal_eliasfano;
decltype(kernels::seal_raw32) seal_raw32;
decltype(kernels::seeded_decode) seeded_decode;
decltype(kernels::select_sums) select_sums;
decltype(kernels::select_sums_scratch) select_sums_scratch;
decltype(kernels::split_by_owner) split_by_owner;
decltype(kernels::split_scratch) split_scratch;
decltype(kernels::store) store;
decltype(kernels::store_owned) store_owned;
decltype(kernels::take) take;
decltype(kernels::take_owned) take_owned;
decltype(kernels::to_ordered) to_ordered;
decltype(kernels::widen) widen;
decltype(kernels::write_owned) write_owned;
decltype(kernels::zero) zero;
}  // namespace cuda

constinit const Bodies kCuda{
    .add_owned = cuda::add_owned,
    .all_finite = cuda::all_finite,
    .average = cuda::average,
    .bitmap_decode = cuda::bitmap_decode,
    .check_headers = cuda::check_headers,
    .check_values = cuda::check_values,
    .checksums = cuda::checksums,
    .claimed_k = cuda::claimed_k,
    .copy = cuda::copy,
    .dequantize = cuda::dequantize,
    .eliasfano_decode = cuda::eliasfano_decode,
    .end_call = cuda::end_call,
    .feedback_add = cuda::feedback_add,
    .feedback_keep = cuda::feedback_keep,
    .feedback_quantize = cuda::feedback_quantize,
    .feedback_select = cuda::feedback_select,
    .feedback_select_scratch = cuda::feedback_select_scratch,
    .feedback_threshold = cuda::feedback_threshold,
    .feedback_threshold_scratch = cuda::feedback_threshold_scratch,
    .fill = cuda::fill,
    .fits = cuda::fits,
    .from_ordered = cuda::from_ordered,
    .judge_messages = cuda::judge_messages,
    .keep_sums = cuda::keep_sums,
    .merge = cuda::merge,
    .narrow = cuda::narrow,
    .ordered_sum = cuda::ordered_sum,
    .place_terms = cuda::place_terms,
    .positions_of = cuda::positions_of,
    .put = cuda::put,
    .quantize = cuda::quantize,
    .raw32_decode = cuda::raw32_decode,
    .reduce = cuda::reduce,
    .residual_add = cuda::residual_add,
    .scale = cuda::scale,
    .seal = cuda::seal,
    .seal_bitmap = cuda::seal_bitmap,
    .seal_eliasfano = cuda::seal_eliasfano,
    .seal_raw32 = cuda::seal_raw32,
    .seeded_decode = cuda::seeded_decode,
    .select_sums = cuda::select_sums,
    .select_sums_scratch = cuda::select_sums_scratch,
    .split_by_owner = cuda::split_by_owner,
    .split_scratch = cuda::split_scratch,
    .store = cuda::store,
    .store_owned = cuda::store_owned,
    .take = cuda::take,
    .take_owned = cuda::take_owned,
    .to_ordered = cuda::to_ordered,
    .widen = cuda::widen,
    .write_owned = cuda::write_owned,
    .zero = cuda::zero,
};

}  // namespace winnow::kernels
