/* build: driver; run: limit_of_peers PEERS on sim
 * Copies between all pairs of all devices, both ways; then each device enables so many peers, the last ones first. Every
 * answer is that of a context that has no peers yet, and the bytes are right. Then it disables them, and enables them again.
 *
 * On stderr: how many pairs had direct copies before.
 */
#include <cuda.h>

#include "check.h"

enum { SIZE = 2 << 20, COPIES = 3, MOST = 64 };

static int devices, peers;
static CUcontext contexts[MOST];
static CUdeviceptr memory[MOST];

static void copy_all(void)
{
    static unsigned char sent[SIZE], got[SIZE];
    int wrong = 0;
    for (int from = 0; from < devices; from++)
        for (int to = 0; to < devices; to++) {
            if (from == to)
                continue;
            fill(sent, SIZE, (unsigned)(from * MOST + to));
            CHECK_CU(cuCtxSetCurrent(contexts[from]));
            CHECK_CU(cuMemcpyHtoD(memory[from], sent, SIZE));
            for (int i = 0; i < COPIES; i++)
                CHECK_CU(cuMemcpyPeerAsync(memory[to], contexts[to], memory[from], contexts[from], SIZE, NULL));
            CHECK_CU(cuCtxSynchronize());
            CHECK_CU(cuMemcpyDtoH(got, memory[to], SIZE));
            wrong += memcmp(sent, got, SIZE) != 0;
        }
    printf("%d wrong\n", wrong);
}

static void tell_direct(void)
{
    unsigned long long direct, staged;
    int pairs = 0;
    for (int from = 0; from < devices; from++)
        for (int to = 0; to < from; to++)
            pairs += simulated_copies(from, to, &direct, &staged) && staged < COPIES;
    fprintf(stderr, "%d pairs direct\n", pairs);
}

static void each(const char *what, CUresult do_it(CUcontext))
{
    for (int from = 0; from < devices; from++) {
        CHECK_CU(cuCtxSetCurrent(contexts[from]));
        printf("%s from %d:", what, from);
        for (int peer = devices - 1, done = 0; peer >= 0 && done < peers; peer--)
            if (peer != from)
                done++, printf(" %d", (int)do_it(contexts[peer]));
        printf("\n");
    }
}

static CUresult enable(CUcontext peer)
{
    return cuCtxEnablePeerAccess(peer, 0);
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 1);
    peers = atoi(argv[1]);
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGetCount(&devices));
    REQUIRE(devices <= MOST);
    for (int device = 0; device < devices; device++)
        memory[device] = context_memory(&contexts[device], device, SIZE);
    copy_all();
    tell_direct();
    for (int round = 0; round < 2; round++) {
        each("enable", enable);
        copy_all();
        each("disable", cuCtxDisablePeerAccess);
        copy_all();
    }
    return 0;
}
