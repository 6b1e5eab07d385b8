/* build: hip; run: hip_ipc on sim
 * Two processes share memory and an event by handles: the owner records the event behind a write, the other waits for it and reads.
 */
#include "hip.h"
#include "check.h"

enum { BYTES = 1 << 20 };

static int shown(const char *call, hipError_t error)
{
    printf("%s = %d\n", call, (int)error);
    return (int)error;
}
#define ANSWER(call) shown(#call, (call))

static void opener(int from, int to)
{
    hipIpcMemHandle_t memory;
    hipIpcEventHandle_t event;
    unsigned char *there, *mine, *host = malloc(BYTES);
    hipEvent_t written;
    hipStream_t stream;
    REQUIRE(read(from, &memory, sizeof memory) == sizeof memory && read(from, &event, sizeof event) == sizeof event);
    ANSWER(hipSetDevice(1));
    ANSWER(hipMalloc((void **)&mine, BYTES));
    ANSWER(hipStreamCreate(&stream));
    ANSWER(hipIpcOpenMemHandle((void **)&there, memory, 0));
    ANSWER(hipIpcOpenMemHandle((void **)&there, memory, hipIpcMemLazyEnablePeerAccess));
    ANSWER(hipIpcOpenEventHandle(&written, event));
    ANSWER(hipStreamWaitEvent(stream, written, 0));
    ANSWER(hipMemcpyAsync(mine, there, BYTES, hipMemcpyDeviceToDevice, stream));
    ANSWER(hipStreamSynchronize(stream));
    ANSWER(hipMemcpy(host, mine, BYTES, hipMemcpyDeviceToHost));
    printf("%s\n", host[0] == 7 && host[BYTES - 1] == 7 ? "right" : "WRONG");
    ANSWER(hipIpcCloseMemHandle(there));
    ANSWER(hipIpcCloseMemHandle(there));
    fflush(stdout);
    REQUIRE(write(to, "", 1) == 1);
}

int main(void)
{
    int to_opener[2], to_owner[2];
    char byte;
    REQUIRE(pipe(to_opener) == 0 && pipe(to_owner) == 0);
    if (fork() == 0) {
        opener(to_opener[0], to_owner[1]);
        _exit(0);
    }
    unsigned char *memory, *opened;
    hipEvent_t written;
    hipIpcMemHandle_t handle;
    hipIpcEventHandle_t event;
    REQUIRE(hipSetDevice(0) == hipSuccess && hipMalloc((void **)&memory, BYTES) == hipSuccess);
    REQUIRE(hipEventCreateWithFlags(&written, hipEventInterprocess | hipEventDisableTiming) == hipSuccess);
    REQUIRE(hipMemset(memory, 7, BYTES) == hipSuccess && hipEventRecord(written, NULL) == hipSuccess);
    REQUIRE(hipIpcGetMemHandle(&handle, memory) == hipSuccess && hipIpcGetEventHandle(&event, written) == hipSuccess);
    REQUIRE(hipIpcOpenMemHandle((void **)&opened, handle, hipIpcMemLazyEnablePeerAccess) == hipErrorInvalidContext);
    REQUIRE(write(to_opener[1], &handle, sizeof handle) == sizeof handle && write(to_opener[1], &event, sizeof event) == sizeof event);
    REQUIRE(read(to_owner[0], &byte, 1) == 1);
    wait(NULL);
    return hipFree(memory) == hipSuccess ? 0 : 1;
}
