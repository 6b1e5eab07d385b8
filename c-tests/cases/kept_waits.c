/* build: runtime12+; run: kept_waits graphs|launched|tails|streams|queue COUNT [synchronize|spare|destination] on sim gpu
 * Calls on device 1 wait for a queued copy from device 0, however many others there are.
 *
 *   graphs     COUNT executable graphs of one copy, and one of ten, are there
 *   launched   COUNT of one copy are there, and the last was launched
 *   tails      COUNT of one copy and something behind it are there, and the last is launched behind the queued copy, and ends before it. Where host
 *              functions that wait hold up graphs, as on real GPUs, this does not end
 *   streams    COUNT other streams have a copy under way when the copy is queued. They are let go first
 *   queue      one stream gets COUNT copies behind its gate. A stream holds P2PSIM_QUEUE launches, or as many as the driver likes
 *
 * Then comes cudaDeviceSynchronize, or cudaFree of other memory on device 1 or of the copy's destination. A thread opens the copy's gate after
 * LATER_MS. A call has waited if the gate was open when it returned: a slow machine does not make a call that returns early look late.
 *
 * Prints whether the call waited, its code, that of the copy's stream, and whether the bytes arrived.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 2 << 20, PART = 4096, SMALL = 64, WARM_UPS = 40, PARTS_OF_GRAPH = 10, LATER_MS = 100, GIVES_UP_MS = 10000 };
/* Gates are open up to a number: that of the other streams' work, and that of the copy. */
enum { OTHERS = 1, COPY = 2 };

static volatile int opened, queued;
static char *src, *dst, *spare, *ignored;
static cudaGraphExec_t with_tail;
static cudaStream_t stream, beside;
static unsigned char pattern[BYTES], found[BYTES];

static void CUDART_CB hold(void *gate)
{
    while (opened < (intptr_t)gate)
        sleep_for(1);
}

static void close_gate(cudaStream_t of, intptr_t gate) { CHECK(cudaLaunchHostFunc(of, hold, (void *)gate)); }

static void *open_gates(void *data)
{
    for (int gate = opened + 1; gate <= COPY; gate++) {
        sleep_for(LATER_MS);
        opened = gate;
    }
    return data;
}

static cudaStream_t new_stream(void)
{
    cudaStream_t made = non_blocking_stream();
    return made;
}

/* Memory, and so many copies that p2pshim has made the pair direct. */
static void prepare(void)
{
    fill(pattern, BYTES, 1);
    dst = device_memory(1, BYTES);
    CHECK(cudaMalloc((void **)&spare, BYTES));
    src = device_memory(0, BYTES);
    CHECK(cudaMalloc((void **)&ignored, PART));
    CHECK(cudaMemset(src, 0, BYTES));
    stream = new_stream();
    beside = new_stream();
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < WARM_UPS; i++)
        CHECK(cudaMemcpyPeerAsync(dst, 1, src, 0, BYTES, beside));
    CHECK(cudaStreamSynchronize(beside));
    CHECK(cudaMemcpyAsync(src, pattern, BYTES, cudaMemcpyHostToDevice, beside));
    CHECK(cudaStreamSynchronize(beside));
}

/* ---- What else there is ---- */

static cudaGraphExec_t executable(int copies, int has_tail)
{
    cudaGraph_t graph;
    cudaGraphNode_t node, tail;
    cudaGraphExec_t exec;
    CHECK(cudaGraphCreate(&graph, 0));
    for (int i = 0; i < copies; i++)
        CHECK(cudaGraphAddMemcpyNode1D(&node, graph, NULL, 0, dst + i * PART, src + i * PART, copies == 1 ? BYTES : PART, cudaMemcpyDefault));
    if (has_tail)
        CHECK(cudaGraphAddMemcpyNode1D(&tail, graph, &node, 1, ignored, src, PART, cudaMemcpyDefault));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

static void graphs(int count, int is_launched)
{
    cudaGraphExec_t last = NULL;
    for (int i = 0; i < count; i++)
        last = executable(1, 0);
    if (is_launched) {
        CHECK(cudaGraphLaunch(last, beside));
        CHECK(cudaStreamSynchronize(beside));
    } else {
        executable(PARTS_OF_GRAPH, 0);
    }
    opened = OTHERS;
}

static void tails(int count)
{
    for (int i = 0; i < count; i++)
        with_tail = executable(1, 1);
    opened = OTHERS;
}

static void streams(int count)
{
    cudaEvent_t event;
    cudaStream_t *others = malloc(count * sizeof *others);
    REQUIRE(others);
    /* Before the gate is shut: on real GPUs, streams beyond some number wait for others when they are made. */
    for (int i = 0; i < count; i++)
        others[i] = new_stream();
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    close_gate(beside, OTHERS);
    CHECK(cudaEventRecord(event, beside));
    for (int i = 0; i < count; i++) {
        CHECK(cudaStreamWaitEvent(others[i], event, 0));
        CHECK(cudaMemcpyPeerAsync(spare, 1, src, 0, SMALL, others[i]));
    }
    free(others);
}

/* ---- A queue ---- */

/* Where the copies wait for the gate, it opens in the end. */
static void *give_up(void *data)
{
    for (int last = -1, still = 0; opened < COPY && still < GIVES_UP_MS; last = queued, sleep_for(1))
        still = queued == last ? still + 1 : 0;
    opened = COPY;
    return data;
}

static void queue(int count)
{
    pthread_t thread;
    close_gate(stream, COPY);
    REQUIRE(pthread_create(&thread, NULL, give_up, NULL) == 0);
    for (; queued < count; queued++)
        CHECK(cudaMemcpyPeerAsync(dst, 1, src, 0, BYTES, stream));
    printf("%d copies find room: %s\n", count, opened ? "NO" : "yes");
    opened = COPY;
    REQUIRE(pthread_join(thread, NULL) == 0);
}

/* ---- The call ---- */

static cudaError_t call(const char *what)
{
    return strcmp(what, "synchronize") == 0 ? cudaDeviceSynchronize() : cudaFree(strcmp(what, "spare") == 0 ? spare : dst);
}

static void calls(const char *what)
{
    pthread_t thread;
    close_gate(stream, COPY);
    CHECK(cudaMemcpyPeerAsync(dst, 1, src, 0, BYTES, stream));
    if (with_tail) {
        CHECK(cudaGraphLaunch(with_tail, beside));
        CHECK(cudaStreamSynchronize(beside));
    }
    CHECK(cudaSetDevice(1));
    REQUIRE(pthread_create(&thread, NULL, open_gates, NULL) == 0);
    cudaError_t code = call(what);
    int has_waited = opened == COPY;
    REQUIRE(pthread_join(thread, NULL) == 0);
    printf("%s: %s, %s\n", what, has_waited ? "waits" : "DOES NOT WAIT", cudaGetErrorName(code));
}

/* Whether the bytes are there: by a stream of device 1, which comes after no copy. */
static void check_bytes(void)
{
    CHECK(cudaSetDevice(1));
    cudaStream_t reader = new_stream();
    CHECK(cudaMemcpyAsync(found, dst, BYTES, cudaMemcpyDeviceToHost, reader));
    CHECK(cudaStreamSynchronize(reader));
    printf("bytes %s\n", memcmp(found, pattern, BYTES) ? "WRONG" : "right");
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 2);
    int count = atoi(argv[2]);
    const char *what = argc > 3 ? argv[3] : "synchronize";
    prepare();
    if (strcmp(argv[1], "queue") == 0) {
        queue(count);
    } else {
        if (strcmp(argv[1], "streams") == 0)
            streams(count);
        else if (strcmp(argv[1], "tails") == 0)
            tails(count);
        else
            graphs(count, strcmp(argv[1], "launched") == 0);
        calls(what);
    }
    CHECK(cudaSetDevice(0));
    cudaError_t end = cudaStreamSynchronize(stream);
    printf("stream: %s\n", cudaGetErrorName(end));
    if (strcmp(what, "destination") != 0 && end == cudaSuccess)
        check_bytes();
    fflush(stdout);
    _exit(0);
}
