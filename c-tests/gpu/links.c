/* build: static; run: links threads|kernels|processes DIVISOR on gpu
 * How fast copies are on several links at once, between GPUs that do not access each other, by whoever stages them.
 *
 * On four GPUs: 0>1 alone, 0>1 with 2>3, and a ring, in which each GPU sends and receives. On two: 0>1 alone, and 1>0 with it.
 *
 *   threads     each link has a thread and a stream of its own
 *   kernels     the same, and in the stream some memory of the source's GPU is set before each copy, as a kernel does
 *   processes   each link of the most that there are has a process of its own, as launchers start them
 *
 * A line for each number of links and size: links, MiB, GB/s a link. Tabs between columns; medians. All sizes are divided by DIVISOR.
 * Exits with 1 if a copy brought wrong bytes.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "measure.h"

enum {
    SAMPLES = 3,
    LINKS = 4,
    SIZES = 5,
    WORDS = (1 << 20) / 4,
};
static const size_t sizes[SIZES] = {4, 16, 64, 256, 1024};

/* What the processes share. */
static struct shared {
    pthread_barrier_t barrier;
    double begun, rates[SAMPLES];
} *shared;

static int gpus, links, has_kernels;
static size_t divisor, scratch_bytes;

static int source_of(int link)
{
    return links == 2 && gpus >= 4 ? 2 * link : link;
}

static int target_of(int link)
{
    return links == 2 && gpus >= 4 ? 2 * link + 1 : (link + 1) % (gpus >= 4 ? 4 : 2);
}

/* Each word of a link's memory is another. */
static void words_of(uint32_t *words, int link, size_t block)
{
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = (uint32_t)(link + 1) * 0x9e3779b1u + (uint32_t)block * WORDS + i;
}

/* Of large memory, every seventh MiB and the last: no size of pieces leaves out the same ones each time. */
static void require_right(const char *target, size_t size, int link)
{
    uint32_t *expected = malloc(MIB), *found = malloc(MIB);
    const size_t blocks = size / MIB, step = blocks > 64 ? 7 : 1;
    CHECK(cudaSetDevice(target_of(link)));
    for (size_t block = 0; block < blocks; block = block + step < blocks || block == blocks - 1 ? block + step : blocks - 1) {
        words_of(expected, link, block);
        CHECK(cudaMemcpy(found, target + block * MIB, MIB, cudaMemcpyDeviceToHost));
        REQUIRE(memcmp(expected, found, MIB) == 0);
    }
    free(expected);
    free(found);
}

static void meet(void)
{
    pthread_barrier_wait(&shared->barrier);
}

/* One number of links: what a thread or a process does for its link. */
static void *make_link(void *argument)
{
    const int link = (int)(intptr_t)argument, from = source_of(link), to = target_of(link);
    const size_t largest = sizes[SIZES - 1] * MIB / divisor;
    uint32_t *words = malloc(MIB);
    char *source, *target, *scratch;
    target = device_memory(to, largest);
    source = device_memory(from, largest);
    CHECK(cudaMalloc((void **)&scratch, scratch_bytes));
    cudaStream_t stream = non_blocking_stream();
    for (size_t block = 0; block < largest / MIB; block++) {
        words_of(words, link, block);
        CHECK(cudaMemcpy(source + block * MIB, words, MIB, cudaMemcpyHostToDevice));
    }
    for (int number = 0; number < SIZES; number++) {
        const size_t size = sizes[number] * MIB / divisor;
        const int in_a_row = sizes[number] >= 1024 ? 2 : sizes[number] >= 256 ? 4 : (int)(512 / sizes[number]);
        CHECK(cudaSetDevice(to));
        CHECK(cudaMemset(target, 0, size));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaSetDevice(from));
        for (int sample = -1; sample < SAMPLES; sample++) {
            meet();
            if (link == 0)
                shared->begun = host_time();
            meet();
            for (int i = 0; i < in_a_row; i++) {
                if (has_kernels)
                    CHECK(cudaMemsetAsync(scratch, i, scratch_bytes, stream));
                CHECK(cudaMemcpyPeerAsync(target, to, source, from, size, stream));
            }
            CHECK(cudaStreamSynchronize(stream));
            meet();
            if (link == 0 && sample >= 0)
                shared->rates[sample] = (double)size * in_a_row / (host_time() - shared->begun) * 1e-3;
        }
        require_right(target, size, link);
        CHECK(cudaSetDevice(from));
        meet();
        if (link == 0) {
            printf("%d\t%zu\t%.2f\n", links, sizes[number], median(shared->rates, SAMPLES));
            fflush(stdout);
        }
    }
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(scratch));
    CHECK(cudaFree(source));
    CHECK(cudaFree(target));
    free(words);
    return NULL;
}

static void prepare(void)
{
    pthread_barrierattr_t attributes;
    REQUIRE(pthread_barrierattr_init(&attributes) == 0);
    REQUIRE(pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
    REQUIRE(pthread_barrier_init(&shared->barrier, &attributes, (unsigned)links) == 0);
}

static void with_threads(void)
{
    pthread_t threads[LINKS];
    prepare();
    for (int link = 0; link < links; link++)
        REQUIRE(pthread_create(&threads[link], NULL, make_link, (void *)(intptr_t)link) == 0);
    for (int link = 0; link < links; link++)
        REQUIRE(pthread_join(threads[link], NULL) == 0);
}

/* The number of GPUs, asked in a process of its own: one that has used CUDA cannot be forked. */
static int count_gpus(void)
{
    int count = 0, status;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        CHECK(cudaGetDeviceCount(&count));
        _exit(count);
    }
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int with_processes(void)
{
    pid_t children[LINKS];
    char number[16];
    int result = 0;
    snprintf(number, sizeof number, "%d", links);
    setenv("LOCAL_WORLD_SIZE", number, 1);
    prepare();
    for (int link = 0; link < links; link++) {
        children[link] = fork();
        REQUIRE(children[link] >= 0);
        if (children[link] == 0) {
            make_link((void *)(intptr_t)link);
            exit(0);
        }
    }
    for (int link = 0; link < links; link++) {
        int status;
        /* If one fails, the others would wait for it for ever. */
        pid_t ended = wait(&status);
        if (ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
            continue;
        result = 1;
        for (int other = 0; other < links; other++)
            if (children[other] != ended)
                kill(children[other], SIGKILL);
    }
    return result;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 3);
    const int is_of_processes = strcmp(argv[1], "processes") == 0;
    has_kernels = strcmp(argv[1], "kernels") == 0;
    REQUIRE(is_of_processes || has_kernels || strcmp(argv[1], "threads") == 0);
    divisor = (size_t)atoi(argv[2]);
    REQUIRE(divisor == 1 || divisor == 2 || divisor == 4);
    scratch_bytes = 32 * MIB / divisor;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    gpus = count_gpus();
    REQUIRE(gpus >= 2);
    const int most = gpus >= 4 ? 4 : 2;
    if (is_of_processes) {
        links = most;
        return with_processes();
    }
    for (links = 1; links <= most; links *= 2)
        with_threads();
    return 0;
}
