/* build reusing-driver/libcuda.so.1: -Wl,-Bsymbolic -lpthread; run: by LD_LIBRARY_PATH
 * A stand-in for libcuda.so.1 that gives handles of streams again as soon as they are free, and survives none that is not
 * alive, as a real driver does: a query of one, or a copy on one, ends the program with a word on what it was. So does any use
 * of an event that was destroyed. It has two devices with memory from MEMORY on; nothing is copied, streams are never idle,
 * and events have passed as soon as they are recorded. The reset of a device takes the events of both along, whose handles are given again.
 * If NO_CONTEXT_IDS is in the environment, contexts have no ids, as before CUDA 12.0.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEVICES = 2, STREAMS = 64, EVENTS = 1 << 20, DEPTH = 16, INVALID_VALUE = 1, INVALID_CONTEXT = 201, SYMBOL_NOT_FOUND = 302, NOT_READY = 600, LAST_DEFAULT = 2 };

static const uint64_t MEMORY = 1ull << 40, OF_A_DEVICE = 1ull << 32;

struct stream {
    atomic_bool alive, is_capturing;
    int device;
    struct stream *next;
};

static struct stream streams[STREAMS], *unused;
static int used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char contexts[DEVICES];
static atomic_uint resets;
static _Thread_local char *current[DEPTH];
static _Thread_local int top;

static void require_alive(const struct stream *stream, const char *what)
{
    if ((uintptr_t)stream <= LAST_DEFAULT || atomic_load(&stream->alive))
        return;
    fprintf(stderr, "a destroyed stream is %s\n", what);
    abort();
}

/* Long enough for another thread to come between. */
static void take_a_while(void)
{
    for (volatile int i = 0; i < 2000; i++)
        continue;
}

static bool is_context(const char *context)
{
    return context >= contexts && context < contexts + DEVICES;
}

/* The device of memory, or -1. */
static int device_of(uint64_t address)
{
    return address >= MEMORY && address < MEMORY + DEVICES * OF_A_DEVICE ? (int)((address - MEMORY) / OF_A_DEVICE) : -1;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = DEVICES;
    return 0;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return 0;
}

int cuCtxEnablePeerAccess(const char *peer, unsigned flags)
{
    (void)peer, (void)flags;
    return 0;
}

/* Nothing is under way. */
int cuCtxSynchronize(void)
{
    return 0;
}

int cuDevicePrimaryCtxRetain(char **context, int device)
{
    *context = &contexts[device];
    return 0;
}

int cuCtxGetCurrent(char **context)
{
    *context = current[top];
    return 0;
}

int cuCtxSetCurrent(char *context)
{
    current[top] = context;
    return 0;
}

int cuCtxPushCurrent_v2(char *context)
{
    if (!is_context(context) || top + 1 == DEPTH)
        return INVALID_CONTEXT;
    current[++top] = context;
    return 0;
}

int cuCtxPopCurrent_v2(char **context)
{
    *context = current[top--];
    return 0;
}

int cuCtxGetId(const char *context, uint64_t *id)
{
    if (getenv("NO_CONTEXT_IDS"))
        return SYMBOL_NOT_FOUND;
    if (!is_context(context))
        return INVALID_CONTEXT;
    *id = (uint64_t)(context - contexts) + 1 + (uint64_t)atomic_load(&resets) * DEVICES;
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = (int)(current[top] - contexts);
    return 0;
}

int cuPointerGetAttributes(unsigned count, const int *attributes, void **values, uint64_t address)
{
    int device = device_of(address);
    for (unsigned i = 0; i < count; i++) {
        switch (attributes[i]) {
        case 1: /* context */
            *(char **)values[i] = device < 0 ? NULL : &contexts[device];
            break;
        case 2: /* of a device */
            *(int *)values[i] = device < 0 ? 0 : 2;
            break;
        case 9: /* ordinal */
            *(int *)values[i] = device;
            break;
        case 10: /* of this process */
            *(int *)values[i] = 1;
            break;
        case 11: /* start, size */
            *(uint64_t *)values[i] = device < 0 ? 0 : MEMORY + (uint64_t)device * OF_A_DEVICE;
            break;
        case 12:
            *(uint64_t *)values[i] = OF_A_DEVICE;
            break;
        default:
            *(int *)values[i] = 0;
        }
    }
    return 0;
}

int cuStreamCreate(struct stream **stream, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    *stream = unused ? unused : &streams[used++];
    unused = unused ? unused->next : NULL;
    pthread_mutex_unlock(&lock);
    (*stream)->device = (int)(current[top] - contexts);
    atomic_store(&(*stream)->alive, true);
    return 0;
}

int cuStreamDestroy_v2(struct stream *stream)
{
    require_alive(stream, "destroyed");
    atomic_store(&stream->alive, false);
    pthread_mutex_lock(&lock);
    stream->next = unused;
    unused = stream;
    pthread_mutex_unlock(&lock);
    take_a_while();
    return 0;
}

int cuStreamQuery(struct stream *stream)
{
    require_alive(stream, "queried");
    take_a_while();
    require_alive(stream, "queried");
    return NOT_READY;
}

int cuStreamGetCtx(const struct stream *stream, char **context)
{
    *context = (uintptr_t)stream <= LAST_DEFAULT ? current[top] : &contexts[stream->device];
    return 0;
}

int cuStreamIsCapturing(const struct stream *stream, unsigned *status)
{
    *status = (uintptr_t)stream > LAST_DEFAULT && atomic_load(&stream->is_capturing);
    return 0;
}

int cuStreamBeginCapture_v2(struct stream *stream, unsigned mode)
{
    (void)mode;
    require_alive(stream, "captured");
    atomic_store(&stream->is_capturing, true);
    return 0;
}

int cuStreamEndCapture(struct stream *stream, void **graph)
{
    require_alive(stream, "captured");
    atomic_store(&stream->is_capturing, false);
    *graph = NULL;
    return 0;
}

/* Until a device is reset each is another. */
static atomic_bool events[EVENTS];
static atomic_int made;

static void require_event(const atomic_bool *event, const char *what)
{
    if (atomic_load(event))
        return;
    fprintf(stderr, "a destroyed event is %s\n", what);
    abort();
}

int cuEventCreate(atomic_bool **event, unsigned flags)
{
    int number = atomic_fetch_add(&made, 1);
    (void)flags;
    if (number >= EVENTS)
        return INVALID_VALUE;
    *event = &events[number];
    atomic_store(*event, true);
    return 0;
}

int cuEventDestroy_v2(atomic_bool *event)
{
    require_event(event, "destroyed");
    atomic_store(event, false);
    return 0;
}

int cuEventRecord(const atomic_bool *event, const struct stream *stream)
{
    require_event(event, "recorded");
    require_alive(stream, "recorded on");
    take_a_while();
    require_alive(stream, "recorded on");
    return 0;
}

int cuEventQuery(const atomic_bool *event)
{
    require_event(event, "queried");
    return 0;
}

int cuEventSynchronize(const atomic_bool *event)
{
    require_event(event, "waited for");
    return 0;
}

int cuEventElapsedTime(float *milliseconds, const atomic_bool *start, const atomic_bool *end)
{
    require_event(start, "measured from");
    require_event(end, "measured to");
    *milliseconds = 0.5f;
    return 0;
}

int cuDevicePrimaryCtxReset_v2(int device)
{
    if (device < 0 || device >= DEVICES)
        return INVALID_CONTEXT;
    for (int number = 0; number < atomic_load(&made) && number < EVENTS; number++)
        atomic_store(&events[number], false);
    atomic_store(&made, 0);
    atomic_fetch_add(&resets, 1);
    return 0;
}

/* There are others who have retained it. */
int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    take_a_while();
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active)
{
    (void)device;
    *flags = 0;
    *is_active = 1;
    return 0;
}

int cuMemcpyPeer(uint64_t dst, char *dst_context, uint64_t src, char *src_context, size_t count)
{
    (void)dst_context, (void)src_context, (void)count;
    return device_of(dst) < 0 || device_of(src) < 0 ? INVALID_VALUE : 0;
}

int cuMemcpyPeerAsync(uint64_t dst, char *dst_context, uint64_t src, char *src_context, size_t count, struct stream *stream)
{
    require_alive(stream, "copied on");
    take_a_while();
    return cuMemcpyPeer(dst, dst_context, src, src_context, count);
}
