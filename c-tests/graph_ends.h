/*
 * Memory of two devices that graphs copy there and back. Define COUNT, its bytes, and include check.h before.
 */
#ifndef P2PSHIM_C_TESTS_GRAPH_ENDS_H
#define P2PSHIM_C_TESTS_GRAPH_ENDS_H

static unsigned char sent[COUNT], received[COUNT];
static unsigned char *near_end, *near_copy, *far_end, *far_copy;
static cudaStream_t stream;

static unsigned char *allocate(int device)
{
    void *memory;
    memory = device_memory(device, COUNT);
    return memory;
}

/* New bytes at the near end, none elsewhere. */
static void refill(void)
{
    static unsigned seed;
    fill(sent, COUNT, ++seed);
    memset(received, 0, COUNT);
    CHECK(cudaMemcpy(near_end, sent, COUNT, cudaMemcpyHostToDevice));
    unsigned char *ends[] = {far_end, far_copy, near_copy};
    for (int i = 0; i < 3; i++)
        if (ends[i])
            CHECK(cudaMemcpy(ends[i], received, COUNT, cudaMemcpyHostToDevice));
}

#endif
