/*
 * A program with a graph that is ready to run enables access to more peers than there can be: what the answers are, and
 * how long the longest took. (It has never copied anything, so that nothing could be given up for it.)
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <time.h>

#include "check.h"

int main(void)
{
    CUcontext contexts[3];
    CUgraph graph;
    CUgraphExec executable;
    CUstream stream;
    double longest = 0;
    CHECK_CU(cuInit(0));
    for (int device = 0; device < 3; device++)
        CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
    CHECK_CU(cuCtxSetCurrent(contexts[0]));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    for (int peer = 1; peer < 3; peer++) {
        struct timespec before, after;
        clock_gettime(CLOCK_MONOTONIC, &before);
        SHOW_CU(cuCtxEnablePeerAccess(contexts[peer], 0));
        clock_gettime(CLOCK_MONOTONIC, &after);
        double took = (double)(after.tv_sec - before.tv_sec) * 1e3 + (double)(after.tv_nsec - before.tv_nsec) / 1e6;
        longest = took > longest ? took : longest;
    }
    printf("longest call: %s\n", longest < 50 ? "short" : "LONG");
    fprintf(stderr, "%.3f ms\n", longest);
    return 0;
}
