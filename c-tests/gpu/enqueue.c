/* build: static; run: enqueue large|small [IN OUT CPU]|many BYTES COUNT on gpu
 * What a peer copy costs the host that only asks for it, and how fast the GPU then is, from GPU 0 to GPU 1.
 *
 *   small    copies of 4 bytes, peer access enabled, a few hundred in a row before they are waited for: prints 0, 1,
 *            and the nanoseconds of a call: the median of the rows, and their mean, with tabs
 *   small IN OUT CPU
 *            the same in turn with other processes on the same processor, so that what disturbs it meets all of them: a
 *            few rows whenever there is a byte in the FIFO IN, of which the first only warms caches up; then a byte
 *            into OUT
 *   large    copies of 256 MiB, one after the other: prints 0, 1, and GB/s by events around all of them
 *   many BYTES COUNT
 *            copies of so many bytes, waited for together: prints 0, 1, and the microseconds that each took
 */
#include <cuda_runtime_api.h>
#include <poll.h>
#include <sched.h>

#include "check.h"
#include "measure.h"

enum { ROWS = 1000, IN_A_ROW = 200, ROWS_A_TURN = 5, LARGE_COPIES = 40, MOST_MILLISECONDS = 60000 };

/* The FIFOs by which processes tell each other whose turn it is; -1 if there are no others. */
static int in = -1, out = -1;

static void take_turns(const char *from, const char *to, int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    in = open(from, O_RDWR | O_CLOEXEC);
    out = open(to, O_RDWR | O_CLOEXEC);
    REQUIRE(in >= 0 && out >= 0);
}

static void await_turn(void)
{
    struct pollfd turn = {.fd = in, .events = POLLIN};
    char byte;
    REQUIRE(in < 0 || (poll(&turn, 1, MOST_MILLISECONDS) == 1 && read(in, &byte, 1) == 1));
}

static void end_turn(void)
{
    REQUIRE(out < 0 || write(out, "", 1) == 1);
}

/* Copies one behind the other: the microseconds of each, until the last is complete. */
static double many(void *to, const void *from, size_t size, int count, cudaStream_t stream)
{
    double start = 0;
    for (int i = -100; i < count; i++) {
        if (i == 0) {
            CHECK(cudaStreamSynchronize(stream));
            start = host_time();
        }
        CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, size, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    return (host_time() - start) / count;
}

int main(int argc, char **argv)
{
    static double rows[ROWS];
    void *to, *from;
    cudaEvent_t begun, ended;
    int large = argc == 2 && strcmp(argv[1], "large") == 0;
    int is_many = argc == 4 && strcmp(argv[1], "many") == 0;
    REQUIRE(large || is_many || ((argc == 2 || argc == 5) && strcmp(argv[1], "small") == 0));
    size_t size = is_many ? strtoull(argv[2], NULL, 10) : large ? 256 * MIB : 4;

    to = device_memory(1, size);
    CHECK(cudaDeviceEnablePeerAccess(0, 0));
    from = device_memory(0, size);
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    cudaStream_t stream = non_blocking_stream();
    CHECK(cudaEventCreate(&begun));
    CHECK(cudaEventCreate(&ended));
    if (is_many) {
        printf("0\t1\t%.4f\n", many(to, from, size, atoi(argv[3]), stream));
        return 0;
    }
    if (large) {
        float milliseconds;
        for (int i = 0; i < 4; i++)
            CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, size, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaEventRecord(begun, stream));
        for (int i = 0; i < LARGE_COPIES; i++)
            CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, size, stream));
        CHECK(cudaEventRecord(ended, stream));
        CHECK(cudaEventSynchronize(ended));
        CHECK(cudaEventElapsedTime(&milliseconds, begun, ended));
        /* Once more, for who looks at what has ended only when there is something new. */
        for (int i = 0; i < LARGE_COPIES; i++) {
            CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, size, stream));
            CHECK(cudaStreamSynchronize(stream));
        }
        printf("0\t1\t%.3f\n", (double)size * LARGE_COPIES / milliseconds * 1e-6);
        return 0;
    }
    double mean = 0;
    int rows_measured = 0;
    if (argc == 5)
        take_turns(argv[2], argv[3], atoi(argv[4]));
    for (int row = -4 * ROWS_A_TURN; row < ROWS; row++) {
        int of_turn = (row + 4 * ROWS_A_TURN) % ROWS_A_TURN;
        if (of_turn == 0)
            await_turn();
        double start = host_time();
        for (int i = 0; i < IN_A_ROW; i++)
            CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, size, stream));
        double each = (host_time() - start) * 1e3 / IN_A_ROW;
        CHECK(cudaStreamSynchronize(stream));
        if (row >= 0 && (in < 0 || of_turn > 0)) {
            rows[rows_measured++] = each;
            mean += each;
        }
        if (of_turn == ROWS_A_TURN - 1)
            end_turn();
    }
    /* Nobody ends while another measures. */
    await_turn();
    end_turn();
    printf("0\t1\t%.1f\t%.1f\n", median(rows, rows_measured), mean / rows_measured);
    return 0;
}
