/* build: -Wl,-rpath,$ORIGIN; run: variable_named_so on nothing
 * A library has variables with the names of peer functions; who looks them up gets the variables.
 */
#include "check.h"

int main(void)
{
    void *library = dlopen("libvariables.so", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library);
    int *driver = dlsym(library, "cuMemcpyPeer"), *runtime = dlsym(library, "cudaMemcpyPeer");
    REQUIRE(driver && runtime);
    printf("%d %d\n", *driver, *runtime);
    *driver = 1;
    printf("%d\n", *(int *)dlsym(library, "cuMemcpyPeer"));
    return 0;
}
