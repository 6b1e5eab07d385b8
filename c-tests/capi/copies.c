/* Copies for programs that link on purpose. */
#include "capi.h"

#define AT(two, which) ((void *)(two)->buffers[which])

static void run_without(void)
{
    char here[64];
    p2pshim_memcpy_3d_t box = {.size = sizeof box, .src = here, .dst = here, .width = 1, .height = 1, .depth = 1};
    SAME(API(memcpy_peer)(here, 0, here, 0, 1), P2PSHIM_NO_DRIVER);
    SAME(API(memcpy_peer_async)(here, 0, here, 0, 1, NULL), P2PSHIM_NO_DRIVER);
    SAME(API(memcpy_3d_peer)(&box), P2PSHIM_NO_DRIVER);
    SAME(API(memcpy_3d_peer_async)(&box, NULL), P2PSHIM_NO_DRIVER);
    SAME(API(memcpy_3d_peer)(NULL), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(memcpy_3d_peer_async)(NULL, NULL), P2PSHIM_INVALID_ARGUMENT);
    REQUIRE(API(driver_code)() == 0);
}

static void check_linear(struct gpus *two, CUstream stream)
{
    static const int devices[][2] = {{1, 0}, {P2PSHIM_ANY_DEVICE, P2PSHIM_ANY_DEVICE}, {1, P2PSHIM_ANY_DEVICE}};
    for (unsigned i = 0; i < 3; i++) {
        prepare(two, 10 + i);
        SAME(API(memcpy_peer)(AT(two, 1), devices[i][0], AT(two, 0), devices[i][1], BYTES), P2PSHIM_OK);
        REQUIRE(has_arrived(two, 10 + i));
        prepare(two, 20 + i);
        SAME(API(memcpy_peer_async)(AT(two, 1), devices[i][0], AT(two, 0), devices[i][1], BYTES, stream), P2PSHIM_OK);
        SAME(two->cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
        REQUIRE(has_arrived(two, 20 + i));
    }
    SAME(API(memcpy_peer_async)(AT(two, 1), 1, AT(two, 0), 0, 0, stream), P2PSHIM_OK);

    /* Ordinals that are not those of the memory. */
    static const int wrong[][2] = {{0, 0}, {1, 1}, {0, 1}, {-2, 0}, {1, 99}};
    prepare(two, 30);
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        SAME(API(memcpy_peer)(AT(two, 1), wrong[i][0], AT(two, 0), wrong[i][1], BYTES), P2PSHIM_INVALID_ARGUMENT);
        SAME(API(memcpy_peer_async)(AT(two, 1), wrong[i][0], AT(two, 0), wrong[i][1], BYTES, stream), P2PSHIM_INVALID_ARGUMENT);
        REQUIRE(API(driver_code)() == 0);
    }
    REQUIRE(!has_arrived(two, 30));
    /* Addresses that are no memory: the driver says so. */
    SAME(API(memcpy_peer)(NULL, 1, AT(two, 0), 0, 16), P2PSHIM_DRIVER_ERROR);
    REQUIRE(API(driver_code)() == CUDA_ERROR_INVALID_VALUE);
    SAME(API(memcpy_peer_async)(AT(two, 1), 1, (void *)64, 0, 16, stream), P2PSHIM_DRIVER_ERROR);
    REQUIRE(API(driver_code)() == CUDA_ERROR_INVALID_VALUE);
    SAME(API(memcpy_peer)(AT(two, 1), 1, AT(two, 0), 0, 16), P2PSHIM_OK);
    REQUIRE(API(driver_code)() == 0);
}

static void check_boxes(struct gpus *two, CUstream stream)
{
    /* 16 x 4 x 4 bytes in all of 256 x 16 x 16. */
    p2pshim_memcpy_3d_t box = {
        .size = sizeof box,
        .src = AT(two, 0), .src_pitch = 256, .src_height = 16, .src_x = 8, .src_y = 2, .src_z = 1, .src_device = 0,
        .dst = AT(two, 1), .dst_pitch = 256, .dst_height = 16, .dst_x = 4, .dst_y = 1, .dst_z = 3, .dst_device = 1,
        .width = 16, .height = 4, .depth = 4,
    };
    for (int is_async = 0; is_async < 2; is_async++) {
        static unsigned char from[BYTES], to[BYTES];
        prepare(two, 40u + (unsigned)is_async);
        fill(from, BYTES, 40u + (unsigned)is_async);
        SAME(is_async ? API(memcpy_3d_peer_async)(&box, stream) : API(memcpy_3d_peer)(&box), P2PSHIM_OK);
        SAME(two->cu.cuCtxSynchronize(), CUDA_SUCCESS);
        SAME(two->cu.cuMemcpyDtoH_v2(to, two->buffers[1], BYTES), CUDA_SUCCESS);
        size_t copied = 0;
        for (size_t z = 0; z < 16; z++)
            for (size_t y = 0; y < 16; y++)
                for (size_t x = 0; x < 256; x++) {
                    bool is_in = x >= 4 && x < 20 && y >= 1 && y < 5 && z >= 3 && z < 7;
                    unsigned char expected = is_in ? from[((z - 2) * 16 + y + 1) * 256 + x + 4] : 0;
                    REQUIRE(to[(z * 16 + y) * 256 + x] == expected);
                    copied += is_in;
                }
        REQUIRE(copied == 16 * 4 * 4);
    }
    p2pshim_memcpy_3d_t wrong = box;
    wrong.size--;
    SAME(API(memcpy_3d_peer)(&wrong), P2PSHIM_INVALID_ARGUMENT);
    SAME(API(memcpy_3d_peer_async)(&wrong, stream), P2PSHIM_INVALID_ARGUMENT);
    wrong = box;
    wrong.dst_device = 0;
    SAME(API(memcpy_3d_peer)(&wrong), P2PSHIM_INVALID_ARGUMENT);
    wrong = box;
    wrong.src_pitch = 8;
    SAME(API(memcpy_3d_peer)(&wrong), P2PSHIM_DRIVER_ERROR);
    REQUIRE(API(driver_code)() == CUDA_ERROR_INVALID_VALUE);
    SAME(API(memcpy_3d_peer)(NULL), P2PSHIM_INVALID_ARGUMENT);
}

/* On a stream that is being captured, which CUDA refuses for peer copies. The shim knows of captures that it sees. */
static void check_capture(struct gpus *two, CUstream stream)
{
    CUgraph graph;
    CUgraphExec ready;
    SAME(two->cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    SAME(API(memcpy_peer_async)(AT(two, 1), 1, AT(two, 0), 0, BYTES, stream), P2PSHIM_OK);
    SAME(two->cu.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    SAME(two->cu.cuGraphInstantiateWithFlags(&ready, graph, 0), CUDA_SUCCESS);
    prepare(two, 50);
    SAME(two->cu.cuGraphLaunch(ready, stream), CUDA_SUCCESS);
    SAME(two->cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    REQUIRE(has_arrived(two, 50));
}

static void run(const char *folder)
{
    (void)folder;
    CUstream stream;
    struct gpus *two = gpus();
    if (!two) {
        run_without();
        return;
    }
    SAME(two->cu.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    check_linear(two, stream);
    check_boxes(two, stream);
    if (is_in_front())
        check_capture(two, stream);
    /* The pair has been enabled, without the program's asking for it. */
    p2pshim_pair_state_t pair = {.size = sizeof pair};
    for (int i = 0; i < ENOUGH; i++)
        SAME(API(memcpy_peer)(AT(two, 1), 1, AT(two, 0), 0, BYTES), P2PSHIM_OK);
    SAME(API(pair_state_get)(0, 1, &pair), P2PSHIM_OK);
    REQUIRE(pair.enabled_by == P2PSHIM_BY_SHIM && strcmp(pair.path, "direct") == 0);
}

const struct task copies_task = {"copies", run};
