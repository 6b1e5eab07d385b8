/*
 * What threads of random_threads.c do beside the workers, all the time: each change outdates some of what p2pshim remembers. Include after what
 * they need of it: `self`, draw(), MUST(), graphs, memory_on().
 */
#ifndef P2PSHIM_C_TESTS_RANDOM_CHANGES_H
#define P2PSHIM_C_TESTS_RANDOM_CHANGES_H

/* Of a thread beside them: a stream and memory for each device. */
struct own {
    cudaStream_t streams[OF_WORKERS];
    char *memory[OF_WORKERS];
};

static void change_pool(int device, cudaStream_t stream)
{
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                          .location = {.type = cudaMemLocationTypeDevice, .id = device}};
    struct cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, (device + 1) % of_workers}, cudaMemAccessFlagsProtReadWrite};
    cudaMemPool_t pool;
    void *memory;
    MUST(cudaMemPoolCreate(&pool, &properties));
    /* There may be no path. */
    if (draw(2) && cudaMemPoolSetAccess(pool, &access, 1) != cudaSuccess)
        (void)cudaGetLastError();
    if (draw(2)) {
        MUST(cudaMallocFromPoolAsync(&memory, BLOCK, pool, stream));
        MUST(cudaFreeAsync(memory, stream));
        MUST(cudaStreamSynchronize(stream));
    }
    MUST(cudaMemPoolDestroy(pool));
}

/* Another one than those that the runtime uses. */
static void change_context(void)
{
    CUcontext context;
    CUdeviceptr memory;
    MUST_CU(cuCtxCreate_v2(&context, 0, devices > 2 ? 2 : (int)draw(2)));
    MUST_CU(cuMemAlloc(&memory, BLOCK));
    if (draw(2))
        MUST_CU(cuMemFree(memory));
    MUST_CU(cuCtxDestroy(context));
}

/* Between devices that no worker copies between. */
static void change_access(void)
{
    MUST(cudaSetDevice(2));
    (void)cudaDeviceEnablePeerAccess(3, 0);
    if (draw(8) == 0)
        usleep(draw(200));
    (void)cudaDeviceDisablePeerAccess(3);
    (void)cudaGetLastError();
}

static void change_graph(const struct own *own, int device, int other)
{
    struct copy small = {.pitch = 4096, .width = 4096, .rows = 1, .slices = 1};
    struct graph g;
    make_graph(&g, own->memory[other], own->memory[device], &small, 1 + (int)draw(3), true);
    if (draw(2))
        MUST(cudaGraphLaunch(g.exec, own->streams[device]));
    destroy_graph(&g);
    MUST(cudaStreamSynchronize(own->streams[device]));
}

static void copy_on_new_stream(const struct own *own, int device, int other)
{
    cudaStream_t stream;
    MUST(cudaStreamCreateWithFlags(&stream, draw(2) ? cudaStreamDefault : cudaStreamNonBlocking));
    MUST(cudaMemcpyPeerAsync(own->memory[other], other, own->memory[device], device, 64 << draw(10), stream));
    if (draw(2))
        MUST(cudaStreamSynchronize(stream));
    MUST(cudaStreamDestroy(stream));
}

static void change_host(void)
{
    void *host;
    if (draw(2)) {
        MUST(cudaMallocHost(&host, BLOCK));
        MUST(cudaFreeHost(host));
        return;
    }
    REQUIRE(posix_memalign(&host, 4096, BLOCK) == 0);
    MUST(cudaHostRegister(host, BLOCK, cudaHostRegisterDefault));
    MUST(cudaHostUnregister(host));
    free(host);
}

static void change_memory(void)
{
    void *memory[4];
    int count = 1 + (int)draw(4);
    for (int i = 0; i < count; i++)
        MUST(cudaMalloc(&memory[i], draw(2) ? BLOCK : ROOM));
    for (int i = 0; i < count; i++)
        MUST(cudaFree(memory[i]));
}

/* What needs no more than a few calls. */
static void change_little(enum change what, const struct own *own, int device)
{
    struct cudaChannelFormatDesc format = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    cudaStream_t stream = own->streams[device];
    cudaArray_t array;
    CUmodule module;
    void *memory;
    if (what == ARRAY) {
        MUST(cudaMallocArray(&array, &format, 64, 64, 0));
        MUST(cudaFreeArray(array));
    } else if (what == STREAM) {
        MUST(cudaStreamCreate(&stream));
        MUST(cudaStreamDestroy(stream));
    } else if (what == MODULE) {
        MUST_CU(cuModuleLoadData(&module, code));
        MUST_CU(cuModuleUnload(module));
    } else if (what == WITHIN) {
        MUST(cudaMemcpyAsync(own->memory[device] + HALF, own->memory[device], BLOCK, cudaMemcpyDefault, stream));
        MUST(cudaStreamSynchronize(stream));
    } else if (what == ASYNC) {
        MUST(cudaMallocAsync(&memory, BLOCK, stream));
        MUST(cudaFreeAsync(memory, stream));
        MUST(cudaStreamSynchronize(stream));
    } else {
        MUST(cudaMemsetAsync(own->memory[device], 1, BLOCK, cudaStreamLegacy));
        MUST(cudaStreamSynchronize(cudaStreamLegacy));
    }
}

static void make_change(const struct own *own)
{
    int device = (int)draw((unsigned)of_workers), other = (device + 1 + (int)draw((unsigned)of_workers - 1)) % of_workers;
    MUST(cudaSetDevice(device));
    switch (self->change) {
    case POOL:
        change_pool(device, own->streams[device]);
        break;
    case CONTEXT:
        change_context();
        break;
    case ACCESS:
        change_access();
        break;
    case EXEC:
        change_graph(own, device, draw(2) ? device : other);
        break;
    case BETWEEN:
        copy_on_new_stream(own, device, other);
        break;
    case MEMORY:
        change_memory();
        break;
    case HOST:
        change_host();
        break;
    default:
        change_little(self->change, own, device);
    }
}

static void *go_on_beside(void *thread)
{
    struct own own;
    self = thread;
    mine = &self->part;
    for (int device = 0; device < of_workers; device++) {
        own.memory[device] = memory_on(device);
        MUST(cudaStreamCreateWithFlags(&own.streams[device], cudaStreamNonBlocking));
    }
    pthread_barrier_wait(&begun);
    while (atomic_load(&workers_left) > 0) {
        self->change = self->all[draw(3)];
        make_change(&own);
        if (self->pause)
            usleep(self->pause);
    }
    return NULL;
}

#endif
