/* build: driver; run: access_stress SECONDS [sig [SEED]] on sim
 * Random calls of four threads, for seconds: must end. Not compared.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>
#include <sys/wait.h>
#include <sys/time.h>
#include <stdatomic.h>
#include <setjmp.h>
#include "check.h"
enum{D=4,T=4};
static CUcontext prim[D];
static CUdeviceptr mem[D]; static atomic_long ops; static atomic_int stop;
static CUdeviceptr glob[D]; static CUcontext gctx[D];
static void onsig(int s){(void)s; if(glob[0])cuMemcpyPeerAsync(glob[1],gctx[1],glob[0],gctx[0],64,NULL);}
static unsigned rnd(unsigned*s){*s=*s*1664525u+1013904223u;return *s>>8;}
static void*work(void*a){unsigned s=(unsigned)(intptr_t)a*7919+1;
 CUcontext own[3]={0};CUdeviceptr om[3]={0};CUcontext x;
 CUstream st=0;int capt=0;CUgraph g;CUgraphExec ge[4]={0};
 cuCtxSetCurrent(prim[s%D]);
 while(!atomic_load(&stop)){
  int d=rnd(&s)%D,e=rnd(&s)%D,i=rnd(&s)%3;atomic_fetch_add(&ops,1);
  switch(rnd(&s)%16){
  case 0:if(!own[i]){if(cuCtxCreate_v2(&own[i],0,d)==0){cuMemAlloc(&om[i],4096);cuCtxPopCurrent(&x);}}break;
  case 1:if(own[i]){cuCtxDestroy(own[i]);own[i]=0;om[i]=0;}break;
  case 2:cuCtxPushCurrent(prim[d]);cuCtxEnablePeerAccess(prim[e],0);cuCtxPopCurrent(&x);break;
  case 3:cuCtxPushCurrent(prim[d]);cuCtxDisablePeerAccess(prim[e]);cuCtxPopCurrent(&x);break;
  case 4:{CUdeviceptr p;cuCtxPushCurrent(prim[d]);if(cuMemAlloc(&p,8192)==0){for(int k=0;k<18;k++)cuMemcpyPeerAsync(mem[e],prim[e],p,prim[d],4096,NULL);cuMemFree(p);}cuCtxPopCurrent(&x);}break;
  case 5:{CUdeviceptr p;cuCtxPushCurrent(prim[d]);if(cuMemAllocAsync(&p,8192,NULL)==0){for(int k=0;k<18;k++)cuMemcpyPeer(mem[e],prim[e],p,prim[d],4096);cuMemFreeAsync(p,NULL);}cuCtxPopCurrent(&x);}break;
  case 6:if(own[i]){cuCtxPushCurrent(own[i]);cuCtxEnablePeerAccess(prim[e],0);cuCtxPopCurrent(&x);}break;
  case 7:if(own[i]){cuCtxPushCurrent(own[i]);cuCtxDisablePeerAccess(prim[e]);cuCtxPopCurrent(&x);}break;
  case 8:case 9:if(own[i])for(int k=0;k<18;k++){cuCtxPushCurrent(own[i]);cuMemcpyPeer(mem[e],prim[e],om[i],own[i],4096);cuCtxPopCurrent(&x);}break;
  case 10:if(!st){cuCtxPushCurrent(prim[d]);cuStreamCreate(&st,1);capt=cuStreamBeginCapture(st,rnd(&s)%3)==0;cuCtxPopCurrent(&x);}else{if(capt){cuMemcpyPeerAsync(mem[d],prim[d],mem[e],prim[e],64,st);if(rnd(&s)%3)if(cuStreamEndCapture(st,&g)==0){int k=rnd(&s)%4;if(ge[k]){cuGraphExecDestroy(ge[k]);ge[k]=0;}else cuGraphInstantiate(&ge[k],g,0);cuGraphDestroy(g);}}cuStreamDestroy(st);st=0;}break;
  case 11:if(rnd(&s)%8==0)cuDevicePrimaryCtxReset(d);break;
  case 12:cuMemcpyPeer(mem[d]+4096,prim[d],mem[e],prim[e],4096);break;
  case 13:cuMemcpyPeerAsync(mem[d],prim[d],(CUdeviceptr)&s,prim[e],64,NULL);cuMemcpyPeerAsync(mem[d],0,0,prim[e],0,NULL);cuMemcpyPeer(mem[d],0,mem[e],0,~0ull);break;
  case 14:if(rnd(&s)%16==0){pid_t p=fork();if(p==0){alarm(20);cuMemcpyPeer(mem[d],prim[d],mem[e],prim[e],64);cuCtxEnablePeerAccess(prim[e],0);_exit(0);}int w;waitpid(p,&w,0);if(!WIFEXITED(w))printf("CHILD %x\n",w);}break;
  case 15:{CUdeviceptr p; CUmemoryPool q;CUmemPoolProps pr={.allocType=1,.location={1,d}};if(cuMemPoolCreate(&q,&pr)==0){cuCtxPushCurrent(prim[d]);cuMemAllocFromPoolAsync(&p,4096,q,NULL);for(int k=0;k<17;k++)cuMemcpyPeer(mem[e],prim[e],p,prim[d],256);if(rnd(&s)%2)cuMemFreeAsync(p,NULL);cuMemPoolDestroy(q);cuCtxPopCurrent(&x);}}break;
  }}
 return NULL;}
int main(int argc,char**argv){pthread_t t[T];CHECK_CU(cuInit(0));
 for(int i=0;i<D;i++){CHECK_CU(cuDevicePrimaryCtxRetain(&prim[i],i));cuCtxSetCurrent(prim[i]);cuMemAlloc(&mem[i],1<<20);glob[i]=mem[i];gctx[i]=prim[i];}
 signal(SIGALRM,onsig);struct itimerval it={{0,3000},{0,3000}};if(argc>2)setitimer(ITIMER_REAL,&it,0);
 for(intptr_t i=0;i<T;i++)pthread_create(&t[i],0,work,(void*)(i+(argc>3?atoi(argv[3])*10:0)));
 for(int i=0;i<atoi(argv[1])*10;i++){struct timespec ts={0,100000000};while(nanosleep(&ts,&ts)){}}
 atomic_store(&stop,1);for(int i=0;i<T;i++)pthread_join(t[i],0);
 fprintf(stderr,"ops %ld\n",(long)ops);_exit(0);}
