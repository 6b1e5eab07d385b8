/* build: hip; run: hip_ends_inside sync|async|box on sim
 * The process ends inside a copy from GPU 0 to GPU 1 that is staged: sync, async, or box, which there is since 7.
 */
#include "hip.h"
#include "lib/ends_inside.h"

static void *from, *to;

#if HIP_MAJOR >= 7
static void box(void)
{
    hipMemcpy3DPeerParms p = {.srcPtr = {from, LARGE, LARGE, 1}, .dstPtr = {to, LARGE, LARGE, 1}, .dstDevice = 1,
                              .extent = {LARGE, 1, 1}};
    CHECK(hipMemcpy3DPeer(&p));
}
#endif

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    CHECK(hipSetDevice(1));
    CHECK(hipMalloc(&to, LARGE));
    CHECK(hipSetDevice(0));
    CHECK(hipMalloc(&from, LARGE));

    if (strcmp(argv[1], "sync") == 0)
        END_INSIDE(CHECK(hipMemcpyPeer(to, 1, from, 0, LARGE)));
    else if (strcmp(argv[1], "async") == 0)
        END_INSIDE(CHECK(hipMemcpyPeerAsync(to, 1, from, 0, LARGE, NULL)));
#if HIP_MAJOR >= 7
    else if (strcmp(argv[1], "box") == 0)
        END_INSIDE(box());
#endif
    REQUIRE(!"known");
}
