/* build: driver; run: without_vm_readv on sim
 * process_vm_readv is refused (EPERM), as some containers do: what a pool is said to grant, and what granting it answers.
 */
#include <cuda.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include "check.h"
int main(void){
 struct sock_filter f[]={BPF_STMT(BPF_LD|BPF_W|BPF_ABS,offsetof(struct seccomp_data,nr)),BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K,SYS_process_vm_readv,0,1),BPF_STMT(BPF_RET|BPF_K,SECCOMP_RET_ERRNO|EPERM),BPF_STMT(BPF_RET|BPF_K,SECCOMP_RET_ALLOW)};
 struct sock_fprog p={4,f};
 REQUIRE(prctl(PR_SET_NO_NEW_PRIVS,1,0,0,0)==0);REQUIRE(prctl(PR_SET_SECCOMP,SECCOMP_MODE_FILTER,&p)==0);
 CUcontext c[2];CUmemoryPool pool;CUdeviceptr m[2];CHECK_CU(cuInit(0));
 for(int i=1;i>=0;i--){CHECK_CU(cuDevicePrimaryCtxRetain(&c[i],i));CHECK_CU(cuCtxSetCurrent(c[i]));CHECK_CU(cuMemAllocAsync(&m[i],4096,NULL));}
 CHECK_CU(cuDeviceGetDefaultMemPool(&pool,0));
 CUmemLocation l={CU_MEM_LOCATION_TYPE_DEVICE,1};CUmemAccess_flags fl=9;
 for(int i=0;i<20;i++)CHECK_CU(cuMemcpyPeer(m[1],c[1],m[0],c[0],64));
 CHECK_CU(cuMemPoolGetAccess(&fl,pool,&l));printf("flags %d\n",fl);
 CUmemAccessDesc d={.location=l,.flags=3};
 SHOW_CU(cuMemPoolSetAccess(pool,&d,1));
 CHECK_CU(cuMemPoolGetAccess(&fl,pool,&l));printf("flags %d\n",fl);
 CUDA_MEMCPY3D_PEER q={.srcMemoryType=CU_MEMORYTYPE_DEVICE,.dstMemoryType=CU_MEMORYTYPE_DEVICE,.srcDevice=m[0],.dstDevice=m[1],
  .srcContext=c[0],.dstContext=c[1],.srcPitch=64,.dstPitch=64,.srcHeight=8,.dstHeight=8,.WidthInBytes=64,.Height=8,.Depth=2};
 for(int i=0;i<3;i++)SHOW_CU(cuMemcpy3DPeer(&q));
 SHOW_CU(cuMemcpy3DPeerAsync(&q,NULL));
 return 0;}
