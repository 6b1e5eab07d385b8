/* build: driver; run: slow_paths on sim
 * Prints nanoseconds a copy, plain and preloaded, for kinds of memory that miss the allocation cache.
 */
/* ns a copy of 0 bytes async on NULL stream for several memory patterns. */
#define _GNU_SOURCE
#include <cuda.h>
#include <string.h>
#include <time.h>
#include "check.h"
static double now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1e9+t.tv_nsec;}
enum{N=20000};
static CUcontext c[2];
static double best(CUdeviceptr*d,CUdeviceptr*s,int n,int box){
  double b=1e18; for(int r=0;r<10;r++){double t=now();
   for(int i=0;i<N/10;i++){ int k=i%n;
    if(box){CUDA_MEMCPY3D_PEER p;memset(&p,0,sizeof p);p.srcMemoryType=p.dstMemoryType=CU_MEMORYTYPE_DEVICE;p.srcDevice=s[k];p.dstDevice=d[k];p.srcContext=c[0];p.dstContext=c[1];p.srcPitch=p.dstPitch=64;p.WidthInBytes=0;p.Height=1;p.Depth=1;CHECK_CU(cuMemcpy3DPeerAsync(&p,NULL));}
    else CHECK_CU(cuMemcpyPeerAsync(d[k],c[1],s[k],c[0],0,NULL));}
   t=(now()-t)/(N/10); if(t<b)b=t;} return b;}
int main(void){
  CUdeviceptr big[2],small[2][8];
  CHECK_CU(cuInit(0));
  for(int i=0;i<2;i++){CHECK_CU(cuDevicePrimaryCtxRetain(&c[i],i));CHECK_CU(cuCtxSetCurrent(c[i]));CHECK_CU(cuMemAlloc(&big[i],64<<20));for(int k=0;k<8;k++)CHECK_CU(cuMemAlloc(&small[i][k],512));}
  CHECK_CU(cuCtxSetCurrent(c[0]));
  for(int i=0;i<40;i++)CHECK_CU(cuMemcpyPeer(big[1],c[1],big[0],c[0],1<<20));
  CHECK_CU(cuCtxSynchronize());
  printf("one pair of large buffers      %5.0f\n",best(&big[1],&big[0],1,0));
  printf("one pair of small buffers      %5.0f\n",best(small[1],small[0],1,0));
  printf("two pairs, small, one page     %5.0f   (%llx %llx)\n",best(small[1],small[0],2,0),small[0][0],small[0][1]);
  printf("eight pairs, small, one page   %5.0f\n",best(small[1],small[0],8,0));
  printf("3D, one pair                   %5.0f\n",best(&big[1],&big[0],1,1));
  CUdeviceptr m; (void)m;
  /* a free between the copies */
  double b=1e18; for(int r=0;r<10;r++){double tt=0; for(int i=0;i<200;i++){CUdeviceptr x;CHECK_CU(cuMemAlloc(&x,512));CHECK_CU(cuMemFree(x));double t=now();CHECK_CU(cuMemcpyPeerAsync(big[1],c[1],big[0],c[0],0,NULL));tt+=now()-t;} tt/=200; if(tt<b)b=tt;} printf("after each free                %5.0f\n",b);
  /* host side: unknown */
  return 0;}
