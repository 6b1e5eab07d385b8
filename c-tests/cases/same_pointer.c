/* build: cudart12 driver; run: same_pointer on sim
 * A function has one address, whether it was linked or looked up, in the runtime and in the driver.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"

static void compare(const char *how, void *handle, const char *name, void *linked)
{
    printf("%s by %s: %s\n", name, how, dlsym(handle, name) == linked ? "the same" : "ANOTHER");
}

int main(void)
{
    void *runtime = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL), *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(runtime && driver);
    compare("handle", runtime, "cudaMemcpyPeer", (void *)cudaMemcpyPeer);
    compare("RTLD_DEFAULT", RTLD_DEFAULT, "cudaMemcpyPeer", (void *)cudaMemcpyPeer);
    compare("handle", driver, "cuMemcpyPeer", (void *)cuMemcpyPeer);
    compare("RTLD_DEFAULT", RTLD_DEFAULT, "cuMemcpyPeer", (void *)cuMemcpyPeer);
    return 0;
}
