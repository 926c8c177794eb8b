! Copyright The Winnow Authors
! SPDX-License-Identifier: Apache-2.0
!
! Sums gradients over MPI ranks, from Fortran. Rank r's gradient has four large elements, and each
! rank checks that every sum is right. docs/building.md says how to compile this.
program allreduce
  use mpi
  use winnow
  implicit none
  integer, parameter :: count = 1000000
  character(len=*), parameter :: options = 'compressor=topk:0.001 op=sum' // c_null_char
  character(len=:, kind=c_char), allocatable, target :: words
  real(c_float), target :: gradient(count), wanted(count)
  type(winnow_reducer_settings) :: settings
  type(winnow_segment) :: bucket(1)
  type(c_ptr) :: transport, reducer
  integer :: rank, ranks, r, error

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)

  call expect(winnow_mpi_transport_fortran(MPI_COMM_WORLD, 60.0_c_double, transport))
  words = options
  settings%options = c_loc(words)
  call expect(winnow_reducer_create(transport, settings, reducer))

  gradient = 0
  call add_to(gradient, rank)
  bucket(1)%id = 0  ! the parameter's
  bucket(1)%count = count
  bucket(1)%data = c_loc(gradient)
  call expect(winnow_all_reduce(reducer, bucket, 1_c_size_t, WINNOW_DEFAULT_OP))

  wanted = 0
  do r = 0, ranks - 1
    call add_to(wanted, r)
  end do
  if (any(gradient /= wanted)) then
    print '(a,i0,a)', 'rank ', rank, ': the sum is wrong'
    call MPI_Abort(MPI_COMM_WORLD, 1, error)
  end if
  if (rank == 0) print '(a,i0,a)', 'the sums over ', ranks, ' ranks are right'

  call winnow_reducer_destroy(reducer)
  call winnow_transport_destroy(transport)
  call MPI_Finalize(error)

contains

  ! What rank r adds: four elements, one of which all ranks have.
  subroutine add_to(elements, r)
    real(c_float), intent(inout) :: elements(:)
    integer, intent(in) :: r
    integer :: i
    do i = 1, 4
      elements(1 + (i - 1) * (1000 + r)) = elements(1 + (i - 1) * (1000 + r)) + real(i * (r + 1))
    end do
  end subroutine

  ! Ends the job if a call of Winnow has failed.
  subroutine expect(status)
    integer(c_int), intent(in) :: status
    integer :: ignored
    if (status == WINNOW_SUCCESS) return
    print '(a,i0,2a)', 'rank ', rank, ': ', winnow_text(winnow_last_error())
    call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
  end subroutine
end program
