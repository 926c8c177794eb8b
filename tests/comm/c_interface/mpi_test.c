/* Copyright The Winnow Authors
   SPDX-License-Identifier: Apache-2.0 */
/* The C interface over MPI, from C99. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <winnow/winnow.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0, failed = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  const MPI_Comm world = MPI_COMM_WORLD, none = MPI_COMM_NULL;
  winnow_transport* transport = NULL;
  failed |= winnow_mpi_transport(&none, 10, &transport) != WINNOW_USAGE_ERROR;
  failed |= winnow_mpi_transport(NULL, 10, &transport) != WINNOW_USAGE_ERROR;
  const int fortran = MPI_Comm_c2f(MPI_COMM_WORLD);
  failed |= winnow_mpi_transport_fortran(MPI_Comm_c2f(none), 10, &transport) != WINNOW_USAGE_ERROR;
#ifdef OPEN_MPI /* others end the program */
  failed |= winnow_mpi_transport_fortran(12345, 10, &transport) != WINNOW_USAGE_ERROR;
  failed |= winnow_mpi_transport_fortran(-1, 10, &transport) != WINNOW_USAGE_ERROR;
#endif
  failed |= winnow_mpi_transport_fortran(fortran, 10, NULL) != WINNOW_USAGE_ERROR;
  failed |= winnow_mpi_transport_fortran(fortran, 60, &transport) != WINNOW_SUCCESS;
  failed |= winnow_transport_rank(transport) != rank || winnow_transport_size(transport) != size;
  winnow_transport_destroy(transport);
  failed |= winnow_mpi_transport(&world, 60, &transport) != WINNOW_SUCCESS;
  winnow_reducer_settings settings;
  memset(&settings, 0, sizeof settings);
  settings.struct_bytes = sizeof settings;
  settings.options = "compressor=topk:1 schedule=balanced min_bytes=0 op=sum";
  winnow_reducer* reducer = NULL;
  failed |= winnow_reducer_create(transport, &settings, &reducer) != WINNOW_SUCCESS;

  float data[1000];
  for (int i = 0; i < 1000; ++i) data[i] = (float)(rank + i);
  winnow_segment segment;
  memset(&segment, 0, sizeof segment);
  segment.struct_bytes = sizeof segment;
  segment.type = WINNOW_FLOAT32;
  segment.count = 1000;
  segment.data = data;
  segment.rate = 1;
  failed |= winnow_all_reduce(reducer, &segment, 1, WINNOW_DEFAULT_OP) != WINNOW_SUCCESS;
  for (int i = 0; i < 1000; ++i) failed |= data[i] != (float)(size * i + size * (size - 1) / 2);
  if (failed) printf("rank %d fails: %s\n", rank, winnow_last_error());

  winnow_reducer_destroy(reducer);
  winnow_transport_destroy(transport);
  MPI_Finalize();
  return failed;
}
