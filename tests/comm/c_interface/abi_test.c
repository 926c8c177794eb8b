/* Copyright The Winnow Authors
   SPDX-License-Identifier: Apache-2.0 */
/* Prints what the binary interface fixes: sizes and offsets of structures, values of enumerations.
   A test compares them with tests/golden/abi.txt, which only ever grows. */
#include <stdio.h>
#include <winnow/winnow.h>

#define SIZE(type) printf(#type " %zu bytes\n", sizeof(type))
#define MEMBER(type, name) \
  printf("  " #name " at %zu, %zu bytes\n", offsetof(type, name), sizeof(((type*)0)->name))
#define VALUE(name) printf(#name " %d\n", (int)(name))

int main(void) {
  VALUE(WINNOW_SUCCESS);
  VALUE(WINNOW_USAGE_ERROR);
  VALUE(WINNOW_COMM_ERROR);
  VALUE(WINNOW_CUDA_ERROR);
  VALUE(WINNOW_MEMORY_ERROR);
  VALUE(WINNOW_INTERNAL_ERROR);
  VALUE(WINNOW_FLOAT32);
  VALUE(WINNOW_BF16);
  VALUE(WINNOW_FP16);
  VALUE(WINNOW_FLOAT64);
  VALUE(WINNOW_INT8);
  VALUE(WINNOW_UINT8);
  VALUE(WINNOW_INT32);
  VALUE(WINNOW_UINT32);
  VALUE(WINNOW_INT64);
  VALUE(WINNOW_UINT64);
  VALUE(WINNOW_DEFAULT_OP);
  VALUE(WINNOW_SUM);
  VALUE(WINNOW_AVERAGE);
  VALUE(WINNOW_MINIMUM);
  VALUE(WINNOW_MAXIMUM);
  VALUE(WINNOW_PRODUCT);
  VALUE(WINNOW_HOST);
  VALUE(WINNOW_CUDA);
  VALUE(WINNOW_LAST_CALL);
  VALUE(WINNOW_ALL_CALLS);
  VALUE(WINNOW_BUCKETS);
  VALUE(WINNOW_SCHEDULES);

  SIZE(winnow_message);
  MEMBER(winnow_message, struct_bytes);
  MEMBER(winnow_message, peer);
  MEMBER(winnow_message, sends);
  MEMBER(winnow_message, reserved);
  MEMBER(winnow_message, data);
  MEMBER(winnow_message, bytes);
  MEMBER(winnow_message, message_bytes);
  SIZE(winnow_tcp_meeting);
  MEMBER(winnow_tcp_meeting, struct_bytes);
  MEMBER(winnow_tcp_meeting, rank);
  MEMBER(winnow_tcp_meeting, size);
  MEMBER(winnow_tcp_meeting, port);
  MEMBER(winnow_tcp_meeting, host);
  MEMBER(winnow_tcp_meeting, job);
  SIZE(winnow_transport_functions);
  MEMBER(winnow_transport_functions, struct_bytes);
  MEMBER(winnow_transport_functions, rank);
  MEMBER(winnow_transport_functions, size);
  MEMBER(winnow_transport_functions, node);
  MEMBER(winnow_transport_functions, sizes_travel);
  MEMBER(winnow_transport_functions, threads);
  MEMBER(winnow_transport_functions, self);
  MEMBER(winnow_transport_functions, start);
  MEMBER(winnow_transport_functions, wait);
  MEMBER(winnow_transport_functions, abort);
  MEMBER(winnow_transport_functions, destroy);
  MEMBER(winnow_transport_functions, duplicate);
  SIZE(winnow_reducer_settings);
  MEMBER(winnow_reducer_settings, struct_bytes);
  MEMBER(winnow_reducer_settings, place);
  MEMBER(winnow_reducer_settings, stream);
  MEMBER(winnow_reducer_settings, options);
  MEMBER(winnow_reducer_settings, refusal);
  SIZE(winnow_segment);
  MEMBER(winnow_segment, struct_bytes);
  MEMBER(winnow_segment, type);
  MEMBER(winnow_segment, id);
  MEMBER(winnow_segment, count);
  MEMBER(winnow_segment, data);
  MEMBER(winnow_segment, input);
  MEMBER(winnow_segment, name);
  MEMBER(winnow_segment, dimensions);
  MEMBER(winnow_segment, rate);
  MEMBER(winnow_segment, exempt);
  SIZE(winnow_second_moment);
  MEMBER(winnow_second_moment, struct_bytes);
  MEMBER(winnow_second_moment, place);
  MEMBER(winnow_second_moment, stream);
  MEMBER(winnow_second_moment, threads);
  MEMBER(winnow_second_moment, rate);
  MEMBER(winnow_second_moment, decay);
  MEMBER(winnow_second_moment, epsilon);
  MEMBER(winnow_second_moment, steps);
  SIZE(winnow_scatter);
  MEMBER(winnow_scatter, struct_bytes);
  MEMBER(winnow_scatter, type);
  MEMBER(winnow_scatter, id);
  MEMBER(winnow_scatter, shard);
  MEMBER(winnow_scatter, input);
  MEMBER(winnow_scatter, output);
  SIZE(winnow_rows);
  MEMBER(winnow_rows, struct_bytes);
  MEMBER(winnow_rows, type);
  MEMBER(winnow_rows, id);
  MEMBER(winnow_rows, table_rows);
  MEMBER(winnow_rows, width);
  MEMBER(winnow_rows, count);
  MEMBER(winnow_rows, rows);
  MEMBER(winnow_rows, values);
  SIZE(winnow_nccl_options);
  MEMBER(winnow_nccl_options, struct_bytes);
  MEMBER(winnow_nccl_options, min_ctas);
  MEMBER(winnow_nccl_options, max_ctas);
  MEMBER(winnow_nccl_options, cga_cluster_size);
  MEMBER(winnow_nccl_options, register_memory);
  return 0;
}
