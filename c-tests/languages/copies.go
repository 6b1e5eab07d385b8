// Copies between two GPUs in several threads of Go, by cgo, as copies.py makes them.
package main

// #include <cuda_runtime_api.h>
import "C"

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

const threads, copies = 4, 24

var wrong, there, back int64

func work(thread int) {
	// A thread's current device is its own.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := 0; i < copies; i++ {
		src, count := (thread+i)%2, 4096*(i+1)+13*thread
		dst := 1 - src
		sent, received := make([]byte, count), make([]byte, count)
		for j := range sent {
			sent[j] = byte(j*7 + thread*31 + i)
		}
		from, to, size := C.int(src), C.int(dst), C.size_t(count)
		var a, b unsafe.Pointer
		code := C.cudaSetDevice(from) | C.cudaMalloc(&a, size) | C.cudaMemcpy(a, unsafe.Pointer(&sent[0]), size, 1)
		code |= C.cudaSetDevice(to) | C.cudaMalloc(&b, size)
		switch i % 3 {
		case 0:
			code |= C.cudaMemcpyPeer(b, to, a, from, size)
		case 1:
			code |= C.cudaMemcpyPeerAsync(b, to, a, from, size, nil) | C.cudaDeviceSynchronize()
		default:
			code |= C.cudaMemcpy(b, a, size, 3)
		}
		code |= C.cudaMemcpy(unsafe.Pointer(&received[0]), b, size, 2) | C.cudaFree(a) | C.cudaFree(b)
		if code != 0 || !bytes.Equal(sent, received) {
			atomic.AddInt64(&wrong, 1)
		}
		atomic.AddInt64([]*int64{&there, &back}[src], int64(count))
	}
}

func main() {
	fmt.Fprintln(os.Stderr, "process", os.Getpid())
	var group sync.WaitGroup
	for thread := 0; thread < threads; thread++ {
		group.Add(1)
		go func(thread int) {
			defer group.Done()
			work(thread)
		}(thread)
	}
	group.Wait()
	fmt.Printf("%d threads: %d wrong\n0>1: %d copies, %d bytes\n1>0: %d copies, %d bytes\n", threads, wrong, threads*copies/2, there, threads*copies/2, back)
	if wrong != 0 {
		os.Exit(1)
	}
}
