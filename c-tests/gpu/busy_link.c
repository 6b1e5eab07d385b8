/* build: static driver; run: busy_link fill|verify on gpu
 * A link that other processes keep full, and a program that has peer access verified meanwhile.
 *
 *   fill      keeps both directions between devices 0 and 1 full of copies, without a gap, until its input ends. Says "full" once
 *             they are, and in the end how many GB/s there were
 *   verify    enables access from 0 to 1 as long as it is refused, 5 s at most, and copies. Prints how often it was refused, and
 *             how the copy went
 */
#include <cuda.h>
#include <poll.h>

#include "check.h"

enum {
    STREAMS = 16, /* in each direction */
    QUEUED = 4,   /* copies on each */
    TRIES = 50,
};
static const size_t BYTES = 32 << 20;

static CUcontext contexts[2];
static CUdeviceptr memory[2][2]; /* of a device: what is sent, and what is received */

static void start(void)
{
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++) {
        contexts[device] = primary_context(device);
        for (int i = 0; i < 2; i++)
            CHECK_CU(cuMemAlloc(&memory[device][i], BYTES));
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int fill_link(void)
{
    static CUstream streams[2][STREAMS];
    static CUevent events[2][STREAMS][QUEUED];
    for (int device = 0; device < 2; device++) {
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuCtxEnablePeerAccess(contexts[!device], 0));
        for (int i = 0; i < STREAMS; i++) {
            CHECK_CU(cuStreamCreate(&streams[device][i], CU_STREAM_NON_BLOCKING));
            for (int slot = 0; slot < QUEUED; slot++)
                CHECK_CU(cuEventCreate(&events[device][i][slot], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
        }
    }
    struct pollfd input = {.fd = 0, .events = POLLIN};
    double begun = now();
    unsigned long long copies = 0;
    for (int round = 0; round < QUEUED || poll(&input, 1, 0) == 0; round++) {
        if (round == 2 * QUEUED) {
            printf("full\n");
            fflush(stdout);
        }
        for (int i = 0; i < STREAMS; i++)
            for (int device = 0; device < 2; device++) {
                CUevent done = events[device][i][round % QUEUED];
                CHECK_CU(cuCtxSetCurrent(contexts[device]));
                if (round >= QUEUED)
                    CHECK_CU(cuEventSynchronize(done));
                CHECK_CU(cuMemcpyPeerAsync(memory[!device][1], contexts[!device], memory[device][0], contexts[device], BYTES,
                                           streams[device][i]));
                CHECK_CU(cuEventRecord(done, streams[device][i]));
                copies++;
            }
    }
    for (int device = 0; device < 2; device++) {
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuCtxSynchronize());
    }
    printf("%.1f\n", copies * (double)BYTES / (now() - begun) / 1e9);
    return 0;
}

static int verify(void)
{
    static unsigned char sent[1 << 20], got[1 << 20];
    int refused = 0;
    CUresult code;
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    while ((code = cuCtxEnablePeerAccess(contexts[1], 0)) == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED && refused < TRIES) {
        refused++;
        usleep(100000);
    }
    fill(sent, sizeof sent, (unsigned)getpid());
    CHECK_CU(cuMemcpyHtoD(memory[0][0], sent, sizeof sent));
    CHECK_CU(cuMemcpyPeer(memory[1][1], contexts[1], memory[0][0], contexts[0], sizeof sent));
    CHECK_CU(cuCtxSetCurrent(contexts[1]));
    CHECK_CU(cuMemcpyDtoH(got, memory[1][1], sizeof got));
    REQUIRE(memcmp(sent, got, sizeof sent) == 0);
    printf("%d refused, then %s\n", refused, driver_error_name(code));
    return 0;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    start();
    return strcmp(argv[1], "fill") == 0 ? fill_link() : verify();
}
