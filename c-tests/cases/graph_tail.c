/* build: runtime12+; run: graph_tail on sim gpu
 * A graph copies in a child graph from device 0 to device 1. Behind that a host function waits until cudaFree of other memory on device 1 has
 * returned: that waits for the copy, and not for the whole graph. The same after the graph was updated, and after its child graph was.
 *
 * If cudaFree does wait for the host function, that gives up after GIVES_UP_MS.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 1 << 20, WARM_UPS = 40, GIVES_UP_MS = 10000 };

static volatile int is_freed, has_given_up;
static char *src, *dst;
static unsigned char pattern[BYTES], found[BYTES];
static cudaGraphNode_t child_node;

static void CUDART_CB tail(void *data)
{
    (void)data;
    for (int i = 0; !is_freed && i < GIVES_UP_MS; i++)
        sleep_for(1);
    has_given_up = !is_freed;
}

static cudaGraph_t child(void)
{
    cudaGraph_t graph;
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNode1D(&node, graph, NULL, 0, dst, src, BYTES, cudaMemcpyDefault));
    return graph;
}

static cudaGraph_t with_tail(cudaStream_t stream)
{
    cudaGraph_t graph, captured;
    cudaGraphNode_t node;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaLaunchHostFunc(stream, tail, NULL));
    CHECK(cudaStreamEndCapture(stream, &captured));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddChildGraphNode(&child_node, graph, NULL, 0, child()));
    CHECK(cudaGraphAddChildGraphNode(&node, graph, &child_node, 1, captured));
    return graph;
}

static void launch(const char *when, cudaGraphExec_t exec, cudaStream_t stream, unsigned seed)
{
    char *spare = device_memory(1, BYTES);
    fill(pattern, BYTES, seed);
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemcpy(src, pattern, BYTES, cudaMemcpyHostToDevice));
    is_freed = 0;
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaSetDevice(1));
    cudaError_t code = cudaFree(spare);
    is_freed = 1;
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(found, dst, BYTES, cudaMemcpyDeviceToHost));
    printf("%s: cudaFree %s, %s; %s\n", when, has_given_up ? "WAITS FOR THE TAIL" : "does not wait for the tail", cudaGetErrorName(code),
           memcmp(found, pattern, BYTES) == 0 ? "right" : "WRONG");
}

int main(void)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    dst = device_memory(1, BYTES);
    src = device_memory(0, BYTES);
    CHECK(cudaSetDevice(0));
    cudaStream_t stream = non_blocking_stream();
    for (int i = 0; i < WARM_UPS; i++)
        CHECK(cudaMemcpyPeerAsync(dst, 1, src, 0, BYTES, stream));
    CHECK(cudaStreamSynchronize(stream));
    graph = with_tail(stream);
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    launch("instantiated", exec, stream, 1);
    CHECK(cudaGraphExecChildGraphNodeSetParams(exec, child_node, child()));
    launch("its child updated", exec, stream, 2);
    CHECK(cudaGraphExecUpdate(exec, with_tail(stream), &info));
    launch("updated", exec, stream, 3);
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, NULL, &nodes));
    printf("%zu nodes\n", nodes);
    return 0;
}
