! Copyright The Winnow Authors
! SPDX-License-Identifier: Apache-2.0
!
! Winnow's Fortran interface: winnow.h by the same names. That header says what each function does;
! tools/fortran_module wrote this file from it. Compile it with your program.
!
! Functions return WINNOW_SUCCESS or another status, and set handles and numbers only if they
! succeed; winnow_text(winnow_last_error()) then says what was wrong. A handle is a type(c_ptr).
! Text that goes in ends with c_null_char; an argument that is left out is NULL. A structure's
! members have their defaults already; memory goes in as c_loc of a variable that is a target.
module winnow
  use, intrinsic :: iso_c_binding
  implicit none

  integer(c_int), parameter :: WINNOW_VERSION_MAJOR = 0
  integer(c_int), parameter :: WINNOW_VERSION_MINOR = 1
  integer(c_int), parameter :: WINNOW_VERSION_PATCH = 0
  integer(c_int), parameter :: WINNOW_SUCCESS = 0
  integer(c_int), parameter :: WINNOW_USAGE_ERROR = 1
  integer(c_int), parameter :: WINNOW_COMM_ERROR = 2
  integer(c_int), parameter :: WINNOW_CUDA_ERROR = 3
  integer(c_int), parameter :: WINNOW_MEMORY_ERROR = 4
  integer(c_int), parameter :: WINNOW_INTERNAL_ERROR = 5
  integer(c_int), parameter :: WINNOW_FLOAT32 = 0
  integer(c_int), parameter :: WINNOW_BF16 = 1
  integer(c_int), parameter :: WINNOW_FP16 = 2
  integer(c_int), parameter :: WINNOW_FLOAT64 = 3
  integer(c_int), parameter :: WINNOW_INT8 = 4
  integer(c_int), parameter :: WINNOW_UINT8 = 5
  integer(c_int), parameter :: WINNOW_INT32 = 6
  integer(c_int), parameter :: WINNOW_UINT32 = 7
  integer(c_int), parameter :: WINNOW_INT64 = 8
  integer(c_int), parameter :: WINNOW_UINT64 = 9
  integer(c_int), parameter :: WINNOW_DEFAULT_OP = -1
  integer(c_int), parameter :: WINNOW_SUM = 0
  integer(c_int), parameter :: WINNOW_AVERAGE = 1
  integer(c_int), parameter :: WINNOW_MINIMUM = 2
  integer(c_int), parameter :: WINNOW_MAXIMUM = 3
  integer(c_int), parameter :: WINNOW_PRODUCT = 4
  integer(c_int), parameter :: WINNOW_HOST = 0
  integer(c_int), parameter :: WINNOW_CUDA = 1
  integer(c_int), parameter :: WINNOW_LAST_CALL = 0
  integer(c_int), parameter :: WINNOW_ALL_CALLS = 1
  integer(c_int), parameter :: WINNOW_BUCKETS = 2
  integer(c_int), parameter :: WINNOW_SCHEDULES = 3

  type, bind(C) :: winnow_tcp_options
    integer(c_int32_t) :: struct_bytes = 72
    type(c_ptr) :: interfaces = c_null_ptr
    type(c_ptr) :: secret = c_null_ptr
    real(c_double) :: host_timeout = 0
    type(c_ptr) :: tls = c_null_ptr
    type(c_ptr) :: tls_certificate = c_null_ptr
    type(c_ptr) :: tls_key = c_null_ptr
    type(c_ptr) :: tls_authority = c_null_ptr
    type(c_ptr) :: stop = c_null_ptr
  end type

  type, bind(C) :: winnow_tcp_meeting
    integer(c_int32_t) :: struct_bytes = 32
    integer(c_int32_t) :: rank = 0
    integer(c_int32_t) :: size = 0
    integer(c_int32_t) :: port = 0
    type(c_ptr) :: host = c_null_ptr
    type(c_ptr) :: job = c_null_ptr
  end type

  type, bind(C) :: winnow_nccl_options
    integer(c_int32_t) :: struct_bytes = 20
    integer(c_int32_t) :: min_ctas = 0
    integer(c_int32_t) :: max_ctas = 0
    integer(c_int32_t) :: cga_cluster_size = 0
    integer(c_int32_t) :: register_memory = 0
  end type

  type, bind(C) :: winnow_message
    integer(c_int32_t) :: struct_bytes = 40
    integer(c_int32_t) :: peer = 0
    integer(c_int32_t) :: sends = 0
    integer(c_int32_t) :: reserved = 0
    type(c_ptr) :: data = c_null_ptr
    integer(c_int64_t) :: bytes = 0
    type(c_ptr) :: message_bytes = c_null_ptr
  end type

  type, bind(C) :: winnow_transport_functions
    integer(c_int32_t) :: struct_bytes = 72
    integer(c_int32_t) :: rank = 0
    integer(c_int32_t) :: size = 0
    integer(c_int32_t) :: node = 0
    integer(c_int32_t) :: sizes_travel = 0
    integer(c_int32_t) :: threads = 0
    type(c_ptr) :: self = c_null_ptr
    type(c_funptr) :: start = c_null_funptr
    type(c_funptr) :: wait = c_null_funptr
    type(c_funptr) :: abort = c_null_funptr
    type(c_funptr) :: destroy = c_null_funptr
    type(c_funptr) :: duplicate = c_null_funptr
  end type

  type, bind(C) :: winnow_reducer_settings
    integer(c_int32_t) :: struct_bytes = 32
    integer(c_int32_t) :: place = 0
    type(c_ptr) :: stream = c_null_ptr
    type(c_ptr) :: options = c_null_ptr
    type(c_ptr) :: refusal = c_null_ptr
  end type

  type, bind(C) :: winnow_segment
    integer(c_int32_t) :: struct_bytes = 64
    integer(c_int32_t) :: type = 0
    integer(c_int64_t) :: id = 0
    integer(c_int64_t) :: count = 0
    type(c_ptr) :: data = c_null_ptr
    type(c_ptr) :: input = c_null_ptr
    type(c_ptr) :: name = c_null_ptr
    integer(c_int32_t) :: dimensions = 0
    real(c_float) :: rate = 1
    integer(c_int32_t) :: exempt = 0
  end type

  type, bind(C) :: winnow_scatter
    integer(c_int32_t) :: struct_bytes = 40
    integer(c_int32_t) :: type = 0
    integer(c_int64_t) :: id = 0
    integer(c_int64_t) :: shard = 0
    type(c_ptr) :: input = c_null_ptr
    type(c_ptr) :: output = c_null_ptr
  end type

  type, bind(C) :: winnow_rows
    integer(c_int32_t) :: struct_bytes = 56
    integer(c_int32_t) :: type = 0
    integer(c_int64_t) :: id = 0
    integer(c_int64_t) :: table_rows = 0
    integer(c_int64_t) :: width = 0
    integer(c_int64_t) :: count = 0
    type(c_ptr) :: rows = c_null_ptr
    type(c_ptr) :: values = c_null_ptr
  end type

  type, bind(C) :: winnow_second_moment
    integer(c_int32_t) :: struct_bytes = 48
    integer(c_int32_t) :: place = 0
    type(c_ptr) :: stream = c_null_ptr
    integer(c_int32_t) :: threads = 0
    real(c_float) :: rate = 1
    real(c_double) :: decay = 0
    real(c_double) :: epsilon = 0
    integer(c_int64_t) :: steps = 0
  end type

  interface
    function winnow_last_error() bind(C) result(answer)
      import
      type(c_ptr) :: answer
    end function
    subroutine winnow_set_last_error(text) bind(C)
      import
      character(kind=c_char), intent(in), optional :: text(*)
    end subroutine
    function winnow_version() bind(C) result(answer)
      import
      type(c_ptr) :: answer
    end function
    subroutine winnow_transport_destroy(transport) bind(C)
      import
      type(c_ptr), value :: transport
    end subroutine
    function winnow_transport_rank(transport) bind(C) result(answer)
      import
      type(c_ptr), value :: transport
      integer(c_int) :: answer
    end function
    function winnow_transport_size(transport) bind(C) result(answer)
      import
      type(c_ptr), value :: transport
      integer(c_int) :: answer
    end function
    function winnow_transport_node(transport) bind(C) result(answer)
      import
      type(c_ptr), value :: transport
      integer(c_int) :: answer
    end function
    subroutine winnow_transport_abort(transport, reason) bind(C)
      import
      type(c_ptr), value :: transport
      character(kind=c_char), intent(in), optional :: reason(*)
    end subroutine
    function winnow_transport_duplicate(transport, seconds, duplicate) bind(C) result(answer)
      import
      type(c_ptr), value :: transport
      real(c_double), value :: seconds
      type(c_ptr), intent(inout) :: duplicate
      integer(c_int) :: answer
    end function
    function winnow_local_transports(size, transports) bind(C) result(answer)
      import
      integer(c_int), value :: size
      type(c_ptr), intent(inout) :: transports(*)
      integer(c_int) :: answer
    end function
    function winnow_tcp_listen(interfaces, listener) bind(C) result(answer)
      import
      character(kind=c_char), intent(in), optional :: interfaces(*)
      type(c_ptr), intent(inout) :: listener
      integer(c_int) :: answer
    end function
    function winnow_tcp_listen_with(options, listener) bind(C) result(answer)
      import
      type(winnow_tcp_options), intent(in), optional :: options
      type(c_ptr), intent(inout) :: listener
      integer(c_int) :: answer
    end function
    function winnow_tcp_can_have_secret() bind(C) result(answer)
      import
      integer(c_int) :: answer
    end function
    function winnow_tcp_address(listener) bind(C) result(answer)
      import
      type(c_ptr), value :: listener
      type(c_ptr) :: answer
    end function
    function winnow_tcp_connect(listener, rank, size, addresses, seconds, transport) &
        bind(C) result(answer)
      import
      type(c_ptr), value :: listener
      integer(c_int), value :: rank
      integer(c_int), value :: size
      type(c_ptr), intent(in), optional :: addresses(*)
      real(c_double), value :: seconds
      type(c_ptr), intent(inout) :: transport
      integer(c_int) :: answer
    end function
    subroutine winnow_tcp_listener_destroy(listener) bind(C)
      import
      type(c_ptr), value :: listener
    end subroutine
    function winnow_tcp_transport(meeting, seconds, transport) bind(C) result(answer)
      import
      type(winnow_tcp_meeting), intent(in), optional :: meeting
      real(c_double), value :: seconds
      type(c_ptr), intent(inout) :: transport
      integer(c_int) :: answer
    end function
    function winnow_tcp_transport_with(meeting, options, seconds, transport) bind(C) result(answer)
      import
      type(winnow_tcp_meeting), intent(in), optional :: meeting
      type(winnow_tcp_options), intent(in), optional :: options
      real(c_double), value :: seconds
      type(c_ptr), intent(inout) :: transport
      integer(c_int) :: answer
    end function
    function winnow_mpi_transport(communicator, seconds, transport) bind(C) result(answer)
      import
      type(c_ptr), value :: communicator
      real(c_double), value :: seconds
      type(c_ptr), intent(inout) :: transport
      integer(c_int) :: answer
    end function
    function winnow_mpi_transport_fortran(communicator, seconds, transport) bind(C) result(answer)
      import
      integer(c_int), value :: communicator
      real(c_double), value :: seconds
      type(c_ptr), intent(inout) :: transport
      integer(c_int) :: answer
    end function
    function winnow_nccl_transport(other, seconds, transport) bind(C) result(answer)
      import
      type(c_ptr), value :: other
      real(c_double), value :: seconds
      type(c_ptr), intent(inout) :: transport
      integer(c_int) :: answer
    end function
    function winnow_nccl_transport_with(other, options, seconds, transport) bind(C) result(answer)
      import
      type(c_ptr), value :: other
      type(winnow_nccl_options), intent(in), optional :: options
      real(c_double), value :: seconds
      type(c_ptr), intent(inout) :: transport
      integer(c_int) :: answer
    end function
    function winnow_nccl_available() bind(C) result(answer)
      import
      integer(c_int) :: answer
    end function
    function winnow_mixed_transport(world, node, seconds, transport) bind(C) result(answer)
      import
      type(c_ptr), value :: world
      type(c_ptr), value :: node
      real(c_double), value :: seconds
      type(c_ptr), intent(inout) :: transport
      integer(c_int) :: answer
    end function
    function winnow_transport_from_functions(functions, transport) bind(C) result(answer)
      import
      type(winnow_transport_functions), intent(in), optional :: functions
      type(c_ptr), intent(inout) :: transport
      integer(c_int) :: answer
    end function
    function winnow_reducer_create(transport, settings, reducer) bind(C) result(answer)
      import
      type(c_ptr), value :: transport
      type(winnow_reducer_settings), intent(in), optional :: settings
      type(c_ptr), intent(inout) :: reducer
      integer(c_int) :: answer
    end function
    subroutine winnow_reducer_destroy(reducer) bind(C)
      import
      type(c_ptr), value :: reducer
    end subroutine
    function winnow_all_reduce(reducer, bucket, segments, op) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      type(winnow_segment), intent(in), optional :: bucket(*)
      integer(c_size_t), value :: segments
      integer(c_int), value :: op
      integer(c_int) :: answer
    end function
    function winnow_reduce_scatter(reducer, scatter, op) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      type(winnow_scatter), intent(in), optional :: scatter
      integer(c_int), value :: op
      integer(c_int) :: answer
    end function
    function winnow_all_reduce_rows(reducer, mine, op, rows, values, count) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      type(winnow_rows), intent(in), optional :: mine
      integer(c_int), value :: op
      type(c_ptr), intent(inout) :: rows(*)
      type(c_ptr), intent(inout) :: values(*)
      integer(c_int64_t), intent(inout) :: count
      integer(c_int) :: answer
    end function
    function winnow_all_reduce_async(reducer, bucket, segments, op, work) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      type(winnow_segment), intent(in), optional :: bucket(*)
      integer(c_size_t), value :: segments
      integer(c_int), value :: op
      type(c_ptr), intent(inout) :: work
      integer(c_int) :: answer
    end function
    function winnow_work_wait(work) bind(C) result(answer)
      import
      type(c_ptr), value :: work
      integer(c_int) :: answer
    end function
    function winnow_work_test(work, done) bind(C) result(answer)
      import
      type(c_ptr), value :: work
      integer(c_int), intent(inout) :: done
      integer(c_int) :: answer
    end function
    function winnow_work_on_complete(work, callback, self) bind(C) result(answer)
      import
      type(c_ptr), value :: work
      type(c_funptr), value :: callback
      type(c_ptr), value :: self
      integer(c_int) :: answer
    end function
    function winnow_work_detach(work) bind(C) result(answer)
      import
      type(c_ptr), value :: work
      integer(c_int) :: answer
    end function
    subroutine winnow_work_destroy(work) bind(C)
      import
      type(c_ptr), value :: work
    end subroutine
    function winnow_reducer_synchronize(reducer) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      integer(c_int) :: answer
    end function
    function winnow_reducer_residual(reducer, id, residual, count) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      integer(c_int64_t), value :: id
      type(c_ptr), intent(inout) :: residual
      integer(c_int64_t), intent(inout) :: count
      integer(c_int) :: answer
    end function
    function winnow_reducer_begin_step(reducer) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      integer(c_int) :: answer
    end function
    function winnow_reducer_discard_step(reducer) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      integer(c_int) :: answer
    end function
    function winnow_reducer_discard_step_of(reducer, ids, count) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      type(c_ptr), value :: ids
      integer(c_int64_t), value :: count
      integer(c_int) :: answer
    end function
    function winnow_reducer_scale_residuals(reducer, factor) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      real(c_float), value :: factor
      integer(c_int) :: answer
    end function
    function winnow_reducer_look_ahead(reducer, id, weights, ahead, count, share) &
        bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      integer(c_int64_t), value :: id
      type(c_ptr), value :: weights
      type(c_ptr), value :: ahead
      integer(c_int64_t), value :: count
      real(c_float), value :: share
      integer(c_int) :: answer
    end function
    function winnow_reducer_look_ahead_share(reducer, momentum, op, share) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      real(c_float), value :: momentum
      integer(c_int), value :: op
      real(c_float), intent(inout) :: share
      integer(c_int) :: answer
    end function
    function winnow_divide_by_moment(by, gradient, moment, count) bind(C) result(answer)
      import
      type(winnow_second_moment), intent(in), optional :: by
      type(c_ptr), value :: gradient
      type(c_ptr), value :: moment
      integer(c_int64_t), value :: count
      integer(c_int) :: answer
    end function
    function winnow_reducer_save(reducer, state) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      type(c_ptr), intent(inout) :: state
      integer(c_int) :: answer
    end function
    function winnow_state_data(state) bind(C) result(answer)
      import
      type(c_ptr), value :: state
      type(c_ptr) :: answer
    end function
    function winnow_state_bytes(state) bind(C) result(answer)
      import
      type(c_ptr), value :: state
      integer(c_size_t) :: answer
    end function
    subroutine winnow_state_destroy(state) bind(C)
      import
      type(c_ptr), value :: state
    end subroutine
    function winnow_reducer_load(reducer, states, bytes, count) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      type(c_ptr), intent(in), optional :: states(*)
      integer(c_size_t), intent(in), optional :: bytes(*)
      integer(c_size_t), value :: count
      integer(c_int) :: answer
    end function
    function winnow_reducer_options(reducer, text, room, bytes) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(inout) :: bytes
      integer(c_int) :: answer
    end function
    function winnow_reducer_stats(reducer, stats, text, room, bytes) bind(C) result(answer)
      import
      type(c_ptr), value :: reducer
      integer(c_int), value :: stats
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(inout) :: bytes
      integer(c_int) :: answer
    end function
  end interface

contains

  ! The text that a function of C returned; empty for c_null_ptr.
  function winnow_text(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: bytes(:)
    integer :: i
    interface
      pure function strlen(text) bind(C)
        import
        type(c_ptr), value :: text
        integer(c_size_t) :: strlen
      end function
    end interface
    text = ''
    if (.not. c_associated(pointer)) return
    call c_f_pointer(pointer, bytes, [strlen(pointer)])
    text = repeat(' ', size(bytes))
    do i = 1, size(bytes)
      text(i:i) = bytes(i)
    end do
  end function
end module
