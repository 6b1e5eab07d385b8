/* build: runtime12+; run: graph_updated_later on sim gpu
 * A graph whose copy cannot be direct yet, since its thread is capturing, is instantiated. Later many copies between the same devices are
 * made, and then the graph is changed. CUDA refuses that if access was enabled in between, which this program does not do. A new graph
 * may have a direct copy.
 */
#include <cuda_runtime_api.h>

#include "check.h"

enum { BYTES = 4 << 20, COPIES = 32 };

static char *memory[2], sent[BYTES], received[BYTES];
static cudaGraphNode_t node;

static cudaGraphExec_t instantiated(size_t bytes)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNode1D(&node, graph, NULL, 0, memory[1], memory[0], bytes, cudaMemcpyDefault));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void copy_often(cudaStream_t stream)
{
    for (int i = 0; i < COPIES; i++) {
        CHECK(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, BYTES, stream));
        CHECK(cudaMemcpyPeerAsync(memory[0], 0, memory[1], 1, BYTES, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
}

int main(void)
{
    cudaGraph_t graph;
    for (int i = 0; i < BYTES; i++)
        sent[i] = (char)(i * 7 + i / 251);
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaMalloc((void **)&memory[device], BYTES));
        CHECK(cudaMemset(memory[device], 0, BYTES));
    }
    CHECK(cudaSetDevice(0));
    cudaStream_t stream = non_blocking_stream();
    cudaStream_t captured = non_blocking_stream();
    CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
    cudaGraphExec_t exec = instantiated(BYTES / 2);
    CHECK(cudaStreamEndCapture(captured, &graph));

    copy_often(stream);
    CHECK(cudaMemcpy(memory[0], sent, BYTES, cudaMemcpyHostToDevice));
    SHOW(cudaGraphExecMemcpyNodeSetParams1D(exec, node, memory[1] + BYTES / 2, memory[0] + BYTES / 2, BYTES / 2, cudaMemcpyDefault));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(received, memory[1], BYTES, cudaMemcpyDeviceToHost));
    printf("the other half is %s\n", memcmp(received + BYTES / 2, sent + BYTES / 2, BYTES / 2) ? "wrong" : "right");
    CHECK(cudaGraphExecDestroy(exec));

    copy_often(stream);
    exec = instantiated(BYTES / 2);
    SHOW(cudaGraphExecMemcpyNodeSetParams1D(exec, node, memory[1], memory[0], BYTES, cudaMemcpyDefault));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    return 0;
}
