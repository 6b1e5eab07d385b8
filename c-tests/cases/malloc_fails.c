/* malloc that fails for large sizes, once told so: the program copes. */
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include "check.h"
static int tight; void*__libc_malloc(size_t);void*malloc(size_t n){if(tight&&n>=100000){errno=ENOMEM;return 0;}return __libc_malloc(n);}
int main(void){CUcontext c[2];CUdeviceptr m[2];CHECK_CU(cuInit(0));
 for(int i=1;i>=0;i--){CHECK_CU(cuDevicePrimaryCtxRetain(&c[i],i));CHECK_CU(cuCtxSetCurrent(c[i]));CHECK_CU(cuMemAlloc(&m[i],4096));}
 tight=1;for(int i=0;i<20;i++)CHECK_CU(cuMemcpyPeer(m[1],c[1],m[0],c[0],64));CHECK_CU(cuCtxSynchronize());printf("through\n");return 0;}
