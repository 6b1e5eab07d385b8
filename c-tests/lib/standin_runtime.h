/*
 * A stand-in for libcudart.so.12 whose peer copies do whatever the program says: block, throw, jump. It has
 * cudaMemcpyPeer, cudaMemcpyPeerAsync, cudaGetLastError and cudaGetErrorName, and nothing else.
 */
#ifndef P2PSHIM_C_TESTS_STANDIN_RUNTIME_H
#define P2PSHIM_C_TESTS_STANDIN_RUNTIME_H

#ifdef __cplusplus
extern "C"
#endif
void standin_on_copy(void (*action)(void)); /* what a copy does from now on; NULL: nothing */
#ifdef __cplusplus
extern "C"
#endif
void standin_async_answers(int code); /* what cudaMemcpyPeerAsync answers from now on; cudaErrorNotReady at first */

#endif
