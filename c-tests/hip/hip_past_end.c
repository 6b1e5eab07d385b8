/* build: hip; run: hip_past_end right|failed|first on sim
 * A copy that goes past its memory, behind one that is right, one that failed as well, or none.
 */
#include "hip.h"

enum { ROWS = 33, WIDTH = 512 };

int main(int argc, char **argv)
{
    char *dst, *src;
    hipStream_t stream;
    const char *before = argc > 1 ? argv[1] : "";
    CHECK(hipSetDevice(0));
    CHECK(hipMalloc((void **)&dst, ROWS * WIDTH));
    CHECK(hipSetDevice(1));
    CHECK(hipMalloc((void **)&src, ROWS * WIDTH));
    CHECK(hipStreamCreate(&stream));
    if (strcmp(before, "right") == 0)
        SHOW(hipMemcpy2DAsync(dst, WIDTH, src, WIDTH, WIDTH, ROWS, hipMemcpyDeviceToDevice, stream));
    if (strcmp(before, "failed") == 0)
        SHOW(hipMemcpyAsync(dst, src, ROWS * WIDTH + 1, hipMemcpyDeviceToDevice, stream));
    SHOW(hipMemcpy2DAsync(dst, WIDTH, src, WIDTH, WIDTH, ROWS + 1, hipMemcpyDeviceToDevice, stream));
    return 0;
}
