/* build: hip; run: hip_threads on sim
 * Eight threads copy between two devices, each with its own stream and memory, while all enable and disable the same peer
 * access. What is enabled belongs to the devices: as often as somebody enables it, somebody disables it. Each has a last
 * error of its own.
 */
#include "hip.h"

enum { THREADS = 8, TIMES = 100, SIZE = 8192 };

struct thread {
    pthread_t id;
    int number, enabled, already, disabled, not_enabled, others, wrong, last_wrong;
};

static void count(struct thread *t, hipError_t code)
{
    switch (code) {
    case hipErrorPeerAccessAlreadyEnabled:
        t->already++;
        break;
    case hipErrorPeerAccessNotEnabled:
        t->not_enabled++;
        break;
    default:
        t->others += code != hipSuccess;
    }
}

static void *run(void *argument)
{
    struct thread *t = argument;
    unsigned char sent[SIZE], received[SIZE];
    int from = t->number % 2, to = !from;
    void *src, *dst;
    hipStream_t stream;
    CHECK(hipSetDevice(to));
    CHECK(hipMalloc(&dst, SIZE));
    CHECK(hipSetDevice(from));
    CHECK(hipMalloc(&src, SIZE));
    CHECK(hipStreamCreateWithFlags(&stream, t->number < 4 ? hipStreamNonBlocking : 0));
    for (int i = 0; i < TIMES; i++) {
        hipError_t code = hipDeviceEnablePeerAccess(to, 0);
        t->enabled += code == hipSuccess;
        count(t, code);
        fill(sent, SIZE, (unsigned)(t->number * TIMES + i));
        CHECK(hipMemcpy(src, sent, SIZE, hipMemcpyHostToDevice));
        CHECK(i % 2 ? hipMemcpyPeer(dst, to, src, from, SIZE) : hipMemcpyPeerAsync(dst, to, src, from, SIZE, stream));
        CHECK(i % 2 ? hipDeviceSynchronize() : hipStreamSynchronize(stream));
        CHECK(hipMemcpy(received, dst, SIZE, hipMemcpyDeviceToHost));
        t->wrong += memcmp(sent, received, SIZE) != 0;
        (void)hipGetLastError();
        hipError_t refused = hipMemcpyPeer(dst, to, NULL, from, (size_t)t->number + 1);
        t->last_wrong += refused != hipErrorInvalidValue || hipGetLastError() != refused;
        code = hipDeviceDisablePeerAccess(to);
        t->disabled += code == hipSuccess;
        count(t, code);
    }
    CHECK(hipStreamDestroy(stream));
    CHECK(hipFree(src));
    CHECK(hipFree(dst));
    return NULL;
}

int main(void)
{
    static struct thread threads[THREADS];
    struct thread all = {0};
    for (int i = 0; i < THREADS; i++) {
        threads[i].number = i;
        REQUIRE(pthread_create(&threads[i].id, NULL, run, &threads[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        struct thread *t = &threads[i];
        REQUIRE(pthread_join(t->id, NULL) == 0);
        all.enabled += t->enabled;
        all.already += t->already;
        all.disabled += t->disabled;
        all.not_enabled += t->not_enabled;
        all.others += t->others;
        all.wrong += t->wrong;
        all.last_wrong += t->last_wrong;
    }
    printf("copies with other bytes: %d\n", all.wrong);
    printf("last errors of somebody else: %d\n", all.last_wrong);
    printf("other codes: %d\n", all.others);
    printf("as often enabled as disabled: %s\n", all.enabled == all.disabled ? "yes" : "no");
    bool enabling = all.enabled + all.already == THREADS * TIMES, disabling = all.disabled + all.not_enabled == THREADS * TIMES;
    printf("every call answered: %s\n", enabling && disabling ? "yes" : "no");
    CHECK(hipSetDevice(0));
    SHOW(hipDeviceDisablePeerAccess(1));
    CHECK(hipSetDevice(1));
    SHOW(hipDeviceDisablePeerAccess(0));
    return 0;
}
