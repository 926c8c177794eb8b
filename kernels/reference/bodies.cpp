// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace reference {
void copy(const Exec&, std::span<std::byte>, std::span<const std::byte>);
decltype(kernels::add_owned) add_owned;
decltype(kernels::all_finite) all_finite;
decltype(kernels::average) average;
decltype(kernels::bitmap_decode) bitmap_decode;
decltype(kernels::check_headers) check_headers;
decltype(kernels::check_values) check_values;
decltype(kernels::checksums) checksums;
decltype(kernels::claimed_k) claimed_k;
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
void place_terms(const Exec&, PlacedTerms&, std::uint64_t);
}  // namespace reference

constinit const Bodies kReference{
    .add_owned = reference::add_owned,
    .all_finite = reference::all_finite,
    .average = reference::average,
    .bitmap_decode = reference::bitmap_decode,
    .check_headers = reference::check_headers,
    .check_values = reference::check_values,
    .checksums = reference::checksums,
    .claimed_k = reference::claimed_k,
    .copy = reference::copy,
    .dequantize = reference::dequantize,
    .eliasfano_decode = reference::eliasfano_decode,
    .end_call = reference::end_call,
    .feedback_add = reference::feedback_add,
    .feedback_keep = reference::feedback_keep,
    .feedback_quantize = reference::feedback_quantize,
    .feedback_select = reference::feedback_select,
    .feedback_select_scratch = reference::feedback_select_scratch,
    .feedback_threshold = reference::feedback_threshold,
    .feedback_threshold_scratch = reference::feedback_threshold_scratch,
    .fill = reference::fill,
    .fits = reference::fits,
    .from_ordered = reference::from_ordered,
    .judge_messages = reference::judge_messages,
    .keep_sums = reference::keep_sums,
    .merge = reference::merge,
    .narrow = reference::narrow,
    .ordered_sum = reference::ordered_sum,
    .place_terms = reference::place_terms,
    .positions_of = reference::positions_of,
    .put = reference::put,
    .quantize = reference::quantize,
    .raw32_decode = reference::raw32_decode,
    .reduce = reference::reduce,
    .residual_add = reference::residual_add,
    .scale = reference::scale,
    .seal = reference::seal,
    .seal_bitmap = reference::seal_bitmap,
    .seal_eliasfano = reference::seal_eliasfano,
    .seal_raw32 = reference::seal_raw32,
    .seeded_decode = reference::seeded_decode,
    .select_sums = reference::select_sums,
    .select_sums_scratch = reference::select_sums_scratch,
    .split_by_owner = reference::split_by_owner,
    .split_scratch = reference::split_scratch,
    .store = reference::store,
    .store_owned = reference::store_owned,
    .take = reference::take,
    .take_owned = reference::take_owned,
    .to_ordered = reference::to_ordered,
    .widen = reference::widen,
    .write_owned = reference::write_owned,
    .zero = reference::zero,
};

}  // namespace winnow::kernels
