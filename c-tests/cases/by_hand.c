/* build: runtime driver; run: by_hand WHAT on sim
 * Copies that go from device 0 to device 1 through a buffer on the host, by the program's own copies, and others that only look so.
 * Prints how many bytes went from device to device. For tests/it/by_hand.rs.
 *
 *   pinned      a pinned buffer, and calls that wait
 *   async       a pinned buffer, and a stream that is waited for
 *   device      the same, but the device is waited for
 *   event       the same, but the second copy follows an event, and the host does not wait before it
 *   pageable    an ordinary buffer, and a stream that is waited for
 *   threads     one thread copies to the host, another one from there
 *   driver      the driver's functions
 *   default     the runtime's functions, which find out the direction themselves
 *   parts       only the first half goes on
 *   twice       two copies, which may be chance
 *   small       copies that are too small to be looked at
 *   loader      a ring of pinned buffers, filled by the host, to both devices
 *   offload     gradients to the host, other data from the same buffer back to the same device
 *   checkpoint  to the host and back, by each device
 *   reused      a result to the host, then other data from the same buffer to the other device
 *   zeroed      the same, of zeros
 *   in_turn     to the same buffer from either device in turn, and on to device 1, which has copied last
 *   back        to the host by device 0, and from there to device 1 and 0 in turn
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <semaphore.h>

#include "check.h"

enum { BYTES = 1 << 20, SMALL = 32 << 10, COUNT = 20, RING = 3 };

static unsigned char expected[BYTES], received[BYTES];
static void *memory[2];
static cudaStream_t stream;
static unsigned long long moved;

static void *pinned(void)
{
    void *buffer;
    CHECK(cudaMallocHost(&buffer, BYTES));
    return buffer;
}

static void *pageable(void)
{
    void *buffer = malloc(BYTES);
    REQUIRE(buffer);
    memset(buffer, 1, BYTES);
    return buffer;
}

/* The two places of the copies. */
static void download(void *buffer, int device, size_t bytes)
{
    CHECK(cudaMemcpy(buffer, memory[device], bytes, cudaMemcpyDeviceToHost));
}

static void upload(int device, const void *buffer, size_t bytes)
{
    CHECK(cudaMemcpy(memory[device], buffer, bytes, cudaMemcpyHostToDevice));
}

/* Has a device hold what no other has, and no copy before. */
static void produce(int device, int step)
{
    fill(expected, BYTES, 17 * step + device);
    CHECK(cudaMemcpy2D(memory[device], 4096, expected, 4096, 4096, BYTES / 4096, cudaMemcpyHostToDevice));
}

static void arrived(int device, size_t bytes)
{
    CHECK(cudaMemcpy2D(received, 4096, memory[device], 4096, 4096, BYTES / 4096, cudaMemcpyDeviceToHost));
    REQUIRE(memcmp(received, expected, bytes) == 0);
    moved += bytes;
}

static void waiting(size_t bytes, int count)
{
    void *buffer = pinned();
    for (int step = 0; step < count; step++) {
        produce(0, step);
        download(buffer, 0, bytes);
        upload(1, buffer, bytes);
        arrived(1, bytes);
    }
}

static void on_stream(void *buffer)
{
    for (int step = 0; step < COUNT; step++) {
        produce(0, step);
        CHECK(cudaMemcpyAsync(buffer, memory[0], BYTES, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpyAsync(memory[1], buffer, BYTES, cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamSynchronize(stream));
        arrived(1, BYTES);
    }
}

static void on_streams(bool waits)
{
    cudaStream_t first, second;
    cudaEvent_t event;
    void *buffer = pinned();
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreate(&first));
    CHECK(cudaEventCreate(&event));
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamCreate(&second));
    for (int step = 0; step < COUNT; step++) {
        produce(0, step);
        CHECK(cudaSetDevice(0));
        CHECK(cudaMemcpyAsync(buffer, memory[0], BYTES, cudaMemcpyDeviceToHost, first));
        if (waits)
            CHECK(cudaDeviceSynchronize());
        else
            CHECK(cudaEventRecord(event, first));
        CHECK(cudaSetDevice(1));
        CHECK(cudaStreamWaitEvent(second, event, 0));
        CHECK(cudaMemcpyAsync(memory[1], buffer, BYTES, cudaMemcpyHostToDevice, second));
        CHECK(cudaStreamSynchronize(second));
        arrived(1, BYTES);
    }
}

static void parts(void)
{
    void *buffer = pinned();
    for (int step = 0; step < COUNT; step++) {
        produce(0, step);
        download(buffer, 0, BYTES);
        upload(1, buffer, BYTES / 2);
        arrived(1, BYTES / 2);
    }
}

static sem_t there, gone;

static void *copies_on(void *buffer)
{
    CHECK(cudaSetDevice(1));
    for (int step = 0; step < COUNT; step++) {
        sem_wait(&there);
        upload(1, buffer, BYTES);
        arrived(1, BYTES);
        sem_post(&gone);
    }
    return NULL;
}

static void by_threads(void)
{
    pthread_t thread;
    void *buffer = pageable();
    sem_init(&there, 0, 0);
    sem_init(&gone, 0, 0);
    REQUIRE(pthread_create(&thread, NULL, copies_on, buffer) == 0);
    for (int step = 0; step < COUNT; step++) {
        produce(0, step);
        download(buffer, 0, BYTES);
        sem_post(&there);
        sem_wait(&gone);
    }
    pthread_join(thread, NULL);
}

static void by_driver(void)
{
    void *buffer = pinned();
    for (int step = 0; step < COUNT; step++) {
        produce(0, step);
        CHECK_CU(cuMemcpyDtoH(buffer, (CUdeviceptr)memory[0], BYTES));
        CHECK_CU(cuMemcpyHtoD((CUdeviceptr)memory[1], buffer, BYTES));
        arrived(1, BYTES);
    }
}

static void by_default(void)
{
    void *buffer = pageable();
    for (int step = 0; step < COUNT; step++) {
        produce(0, step);
        CHECK(cudaMemcpy(buffer, memory[0], BYTES, cudaMemcpyDefault));
        CHECK(cudaMemcpy(memory[1], buffer, BYTES, cudaMemcpyDefault));
        arrived(1, BYTES);
    }
}

static void loader(void)
{
    void *ring[RING];
    for (int slot = 0; slot < RING; slot++)
        ring[slot] = pinned();
    for (int step = 0; step < COUNT; step++) {
        fill(ring[step % RING], BYTES, step);
        upload(0, ring[step % RING], BYTES);
        upload(1, ring[step % RING], BYTES);
    }
}

static void offload(void)
{
    void *buffer = pinned();
    for (int step = 0; step < COUNT; step++) {
        produce(0, step);
        download(buffer, 0, BYTES);
        fill(buffer, BYTES, step + 1000);
        upload(0, buffer, BYTES);
    }
}

static void checkpoint(void)
{
    void *buffers[2] = {pinned(), pinned()};
    for (int step = 0; step < COUNT; step++)
        for (int device = 0; device < 2; device++) {
            produce(device, step);
            download(buffers[device], device, BYTES);
            upload(device, buffers[device], BYTES);
        }
}

static void reused(bool zeroes)
{
    void *buffer = pinned();
    for (int step = 0; step < COUNT; step++) {
        produce(0, step);
        download(buffer, 0, BYTES);
        if (zeroes)
            memset(buffer, 0, BYTES);
        else
            fill(buffer, BYTES, step + 1000);
        upload(1, buffer, BYTES);
    }
}

static void in_turn(void)
{
    void *buffer = pinned();
    for (int step = 0; step < COUNT; step++)
        for (int device = 0; device < 2; device++) {
            produce(device, step);
            download(buffer, device, BYTES);
            if (device == 1)
                upload(device, buffer, BYTES);
        }
}

static void back(void)
{
    void *buffer = pinned();
    for (int step = 0; step < COUNT; step++) {
        produce(0, step);
        download(buffer, 0, BYTES);
        upload(1 - step % 2, buffer, BYTES);
        if (step % 2 == 0)
            arrived(1, BYTES);
    }
}

static const struct named_case ways[] = {
    {"threads", by_threads}, {"driver", by_driver}, {"default", by_default}, NAMED(parts), NAMED(loader), NAMED(offload), NAMED(checkpoint),
    NAMED(in_turn), NAMED(back),
};

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "pinned";
    const struct named_case *way = FIND_CASE(ways, what);
    for (int device = 0; device < 2; device++)
        memory[device] = device_memory(device, BYTES);
    CHECK(cudaStreamCreate(&stream));
    if (way)
        way->run();
    else if (strcmp(what, "pinned") == 0)
        waiting(BYTES, COUNT);
    else if (strcmp(what, "twice") == 0)
        waiting(BYTES, 2);
    else if (strcmp(what, "small") == 0)
        waiting(SMALL, COUNT);
    else if (strcmp(what, "async") == 0)
        on_stream(pinned());
    else if (strcmp(what, "device") == 0 || strcmp(what, "event") == 0)
        on_streams(strcmp(what, "device") == 0);
    else if (strcmp(what, "pageable") == 0)
        on_stream(pageable());
    else if (strcmp(what, "reused") == 0 || strcmp(what, "zeroed") == 0)
        reused(strcmp(what, "zeroed") == 0);
    else
        return 2;
    printf("%llu bytes\n", moved);
    return 0;
}
