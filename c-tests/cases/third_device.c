/* build: driver; run: P2PSIM_DEVICES=3 third_device [context] on sim
 * A synchronous peer copy between two devices while a context of neither is current: on a third device, or with `context` another one of the
 * source's device. It is ordered with the default streams of all three. Something holds one of those up until a host function behind
 * the copy, on another, has run, or for a while; that function tells whether it had to wait.
 */
#include <cuda.h>

#include "check.h"

enum { BYTES = 16 << 20, SOURCE = 0, DESTINATION = 1, CURRENT = 2, PATIENCE_MS = 700 };

static const char *const names[] = {"source's", "destination's", "current"};
static CUcontext contexts[3];
static CUdeviceptr memory[2];
static volatile int has_ended, has_run, has_waited;

static void CUDA_CB hold(void *data)
{
    (void)data;
    for (int waited = 0; !has_run && waited < PATIENCE_MS; waited++)
        sleep_for(1);
    has_ended = 1;
}

static void CUDA_CB look(void *data)
{
    (void)data;
    has_waited = has_ended;
    has_run = 1;
}

static void copy(int form)
{
    CUDA_MEMCPY3D_PEER p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    p.srcDevice = memory[0];
    p.dstDevice = memory[1];
    p.srcContext = contexts[0];
    p.dstContext = contexts[1];
    p.srcPitch = p.dstPitch = p.WidthInBytes = BYTES / 16;
    p.srcHeight = p.dstHeight = p.Height = 16;
    p.Depth = 1;
    if (form)
        CHECK_CU(cuMemcpy3DPeer(&p));
    else
        CHECK_CU(cuMemcpyPeer(memory[1], contexts[1], memory[0], contexts[0], BYTES));
}

static void run(int held, int behind, int form)
{
    has_ended = has_run = has_waited = 0;
    CHECK_CU(cuCtxSetCurrent(contexts[held]));
    CHECK_CU(cuLaunchHostFunc(NULL, hold, NULL));
    CHECK_CU(cuCtxSetCurrent(contexts[CURRENT]));
    copy(form);
    CHECK_CU(cuCtxSetCurrent(contexts[behind]));
    CHECK_CU(cuLaunchHostFunc(NULL, look, NULL));
    for (int of = 0; of < 3; of++) {
        CHECK_CU(cuCtxSetCurrent(contexts[of]));
        CHECK_CU(cuCtxSynchronize());
    }
    printf("%s: the %s default stream %s what the %s had to do before\n", form ? "cuMemcpy3DPeer" : "cuMemcpyPeer", names[behind],
           has_waited ? "waits for" : "does not wait for", names[held]);
}

int main(int argc, char **argv)
{
    int is_same_device = argc > 1 && !strcmp(argv[1], "context");
    CHECK_CU(cuInit(0));
    for (int device = is_same_device ? 1 : 2; device >= 0; device--)
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
    if (is_same_device) {
        CUctxCreateParams none = {0};
        CHECK_CU(cuCtxCreate_v4(&contexts[CURRENT], &none, 0, 0));
    }
    for (int device = 1; device >= 0; device--) {
        CHECK_CU(cuCtxSetCurrent(contexts[device]));
        CHECK_CU(cuMemAlloc(&memory[device], BYTES));
        CHECK_CU(cuCtxSynchronize());
    }
    for (int form = 0; form < 2; form++)
        for (int held = 0; held < 3; held++)
            for (int behind = 0; behind < 3; behind++)
                if (held != behind)
                    run(held, behind, form);
    return 0;
}
