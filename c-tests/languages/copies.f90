! Copies between two GPUs in several threads of Fortran, by iso_c_binding and OpenMP, as copies.py makes them.
program copies
    use iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    implicit none
    integer, parameter :: threads = 4, rounds = 24
    integer :: wrong, thread
    integer(c_size_t) :: there, back

    interface
        integer(c_int) function cudaSetDevice(device) bind(c, name='cudaSetDevice')
            import
            integer(c_int), value :: device
        end function
        integer(c_int) function cudaMalloc(memory, bytes) bind(c, name='cudaMalloc')
            import
            type(c_ptr) :: memory
            integer(c_size_t), value :: bytes
        end function
        integer(c_int) function cudaFree(memory) bind(c, name='cudaFree')
            import
            type(c_ptr), value :: memory
        end function
        integer(c_int) function cudaMemcpy(dst, src, bytes, kind) bind(c, name='cudaMemcpy')
            import
            type(c_ptr), value :: dst, src
            integer(c_size_t), value :: bytes
            integer(c_int), value :: kind
        end function
        integer(c_int) function cudaMemcpyPeer(dst, to, src, from, bytes) bind(c, name='cudaMemcpyPeer')
            import
            type(c_ptr), value :: dst, src
            integer(c_int), value :: to, from
            integer(c_size_t), value :: bytes
        end function
        integer(c_int) function cudaMemcpyPeerAsync(dst, to, src, from, bytes, stream) bind(c, name='cudaMemcpyPeerAsync')
            import
            type(c_ptr), value :: dst, src, stream
            integer(c_int), value :: to, from
            integer(c_size_t), value :: bytes
        end function
        integer(c_int) function cudaDeviceSynchronize() bind(c, name='cudaDeviceSynchronize')
            import
        end function
        integer(c_int) function getpid() bind(c, name='getpid')
            import
        end function
    end interface

    write (error_unit, '(a, i0)') 'process ', getpid()
    wrong = 0
    there = 0
    back = 0
    !$omp parallel do num_threads(threads) schedule(static, 1) reduction(+: wrong, there, back)
    do thread = 0, threads - 1
        call work(thread, wrong, there, back)
    end do
    print '(i0, a, i0, a)', threads, ' threads: ', wrong, ' wrong'
    print '(a, i0, a, i0, a)', '0>1: ', threads * rounds / 2, ' copies, ', there, ' bytes'
    print '(a, i0, a, i0, a)', '1>0: ', threads * rounds / 2, ' copies, ', back, ' bytes'
    if (wrong /= 0) stop 1

contains

    subroutine work(thread, wrong, there, back)
        integer, intent(in) :: thread
        integer, intent(inout) :: wrong
        integer(c_size_t), intent(inout) :: there, back
        integer(c_signed_char), allocatable, target :: sent(:), received(:)
        integer(c_size_t) :: bytes
        integer(c_int) :: src, dst, code
        integer :: i, j
        type(c_ptr) :: a, b

        do i = 0, rounds - 1
            src = mod(thread + i, 2)
            dst = 1 - src
            bytes = 4096 * (i + 1) + 13 * thread
            allocate (sent(bytes), received(bytes))
            do j = 1, int(bytes)
                sent(j) = int(mod((j - 1) * 7 + thread * 31 + i, 128), c_signed_char)
            end do
            code = ior(cudaSetDevice(src), cudaMalloc(a, bytes))
            code = ior(code, cudaMemcpy(a, c_loc(sent), bytes, 1))
            code = ior(code, ior(cudaSetDevice(dst), cudaMalloc(b, bytes)))
            if (mod(i, 3) == 0) then
                code = ior(code, cudaMemcpyPeer(b, dst, a, src, bytes))
            else if (mod(i, 3) == 1) then
                code = ior(code, cudaMemcpyPeerAsync(b, dst, a, src, bytes, c_null_ptr))
                code = ior(code, cudaDeviceSynchronize())
            else
                code = ior(code, cudaMemcpy(b, a, bytes, 3))
            end if
            code = ior(code, cudaMemcpy(c_loc(received), b, bytes, 2))
            code = ior(code, ior(cudaFree(a), cudaFree(b)))
            if (code /= 0 .or. any(sent /= received)) wrong = wrong + 1
            if (src == 0) there = there + bytes
            if (src == 1) back = back + bytes
            deallocate (sent, received)
        end do
    end subroutine
end program
