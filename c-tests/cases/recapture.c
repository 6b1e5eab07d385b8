/* build: runtime12+ driver; run: recapture again [peer]|graphics on sim
 * Captures that begin in ways that came with 13.1 and 13.3: into a graph that was captured before, and for a graphics API. Prints what
 * the calls return, the nodes that there are, and whether data is right: the same with and without p2pshim.
 *
 *   again [peer]   the same copies, then others, into the graph; with `peer` peer copies too, which only p2pshim can capture
 *   graphics       copies for a graphics API, which simulated GPUs make once the capture has ended
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"

enum { COUNT = 9 << 20, MOST_NODES = 16 };

/* The headers of 12 and 13.0 have none of these. */
typedef CUresult changed_node(void *data, CUgraphNode node, const void *before, const void *now, int status);
#define FORM __attribute__((weak)) CUresult CUDAAPI
FORM cuStreamBeginRecaptureToGraph(CUstream, CUstreamCaptureMode, CUgraph, changed_node *, void *);
FORM cuStreamBeginCaptureToCig(CUstream, void *);
FORM cuStreamEndCaptureToCig(CUstream);

#include "graph_ends.h"

static bool with_peer;

static const char *is_right(const void *end)
{
    CHECK(cudaMemcpy(received, end, COUNT, cudaMemcpyDeviceToHost));
    return memcmp(sent, received, COUNT) == 0 ? "right" : "wrong";
}

/* There, and from there back. */
static void copies(unsigned char *there)
{
    printf("  copy %d", cudaMemcpyAsync(there, near_end, COUNT, cudaMemcpyDefault, stream));
    printf(", copy %d", cudaMemcpy2DAsync(near_copy, 4096, there, 4096, 4096, COUNT / 4096, cudaMemcpyDeviceToDevice, stream));
    if (with_peer)
        printf(", peer copy %d", cudaMemcpyPeerAsync(there, 1, near_end, 0, COUNT, stream));
    printf("\n");
}

static void show_nodes(CUgraph graph)
{
    CUgraphNode nodes[MOST_NODES];
    size_t count = MOST_NODES;
    CHECK_CU(cuGraphGetNodes(graph, nodes, &count));
    printf("  nodes %zu:", count);
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CUDA_MEMCPY3D copy = {0};
        CHECK_CU(cuGraphNodeGetType(nodes[i], &type));
        if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
            CHECK_CU(cuGraphMemcpyNodeGetParams(nodes[i], &copy));
        printf(" type %d of %zu x %zu", type, copy.WidthInBytes, copy.Height);
    }
    printf("\n");
}

static void replay(CUgraph graph, const void *there)
{
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 2; i++) {
        refill();
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        printf("  replayed: there %s", is_right(there));
        printf(", back %s\n", is_right(near_copy));
    }
    CHECK(cudaGraphExecDestroy(exec));
}

static CUresult on_change(void *data, CUgraphNode node, const void *before, const void *now, int status)
{
    (void)node, (void)before, (void)now, (void)status;
    ++*(int *)data;
    return CUDA_SUCCESS;
}

static void again(CUstreamCaptureMode mode)
{
    CUgraph graph, ended;
    int changes = 0;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    copies(far_end);
    CHECK(cudaStreamEndCapture(stream, &graph));
    show_nodes(graph);
    replay(graph, far_end);
    unsigned char *ends[] = {far_end, far_copy};
    for (int i = 0; i < 2; i++) {
        printf("again: %d\n", cuStreamBeginRecaptureToGraph(stream, mode, graph, on_change, &changes));
        copies(ends[i]);
        ended = NULL;
        printf("  ended %d", cuStreamEndCapture(stream, &ended));
        printf(" with %s graph, %d changes\n", ended == graph ? "the same" : "another", changes);
        show_nodes(graph);
        replay(graph, ends[i]);
    }
    /* One too few. */
    CHECK_CU(cuStreamBeginRecaptureToGraph(stream, mode, graph, NULL, NULL));
    CHECK(cudaMemcpyAsync(far_copy, near_end, COUNT, cudaMemcpyDefault, stream));
    printf("too few: %d\n", cuStreamEndCapture(stream, &ended));
    CHECK(cudaGraphDestroy(graph));
}

static void graphics(void)
{
    void *parameters[2] = {0};
    void *list[] = {parameters};
    unsigned long long before[2], after[2];
    CUstreamCaptureStatus status;
    for (int i = 0; i < 2; i++) {
        refill();
        REQUIRE(simulated_copies(0, 1, &before[0], &before[1]));
        printf("begun %d\n", cuStreamBeginCaptureToCig(stream, list));
        copies(far_end);
        CHECK_CU(cuStreamIsCapturing(stream, &status));
        printf("  captures %d\n", status);
        printf("  ended %d\n", cuStreamEndCaptureToCig(stream));
        CHECK(cudaStreamSynchronize(stream));
        REQUIRE(simulated_copies(0, 1, &after[0], &after[1]));
        printf("  there %s", is_right(far_end));
        printf(", back %s, copies there %llu\n", is_right(near_copy), after[0] + after[1] - before[0] - before[1]);
    }
}

int main(int argc, char **argv)
{
    REQUIRE(argc >= 2);
    if (!cuStreamBeginRecaptureToGraph) {
        printf("skipped: this driver has no cuStreamBeginRecaptureToGraph\n");
        return 0;
    }
    with_peer = argc > 2;
    far_end = allocate(1), far_copy = allocate(1), near_end = allocate(0), near_copy = allocate(0);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    /* The path is decided, and copies are timed, before anything is captured. */
    refill();
    for (int i = 0; i < 20; i++) {
        CHECK(cudaMemcpyAsync(far_end, near_end, COUNT, cudaMemcpyDefault, stream));
        CHECK(cudaMemcpyAsync(near_copy, far_end, COUNT, cudaMemcpyDefault, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    if (strcmp(argv[1], "graphics") == 0)
        graphics();
    else
        for (int mode = 0; mode < 3; mode++)
            again((CUstreamCaptureMode)mode);
    /* Outside of a capture copies are what they were. */
    refill();
    copies(far_end);
    CHECK(cudaStreamSynchronize(stream));
    printf("not captured: there %s\n", is_right(far_end));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
