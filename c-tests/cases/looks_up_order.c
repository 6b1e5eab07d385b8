/* build: -rdynamic -Wl,-rpath,$ORIGIN; run: looks_up_order on sim
 * Looks functions of the driver up, and says whether each is the driver's own.
 */
#include <link.h>

#include "check.h"

int main(void)
{
    static const char *const names[] = {"cuEventRecord", "cuLaunchKernel", "cuMemcpyAsync"};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(driver);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *found = dlsym(driver, names[i]);
        Dl_info object;
        REQUIRE(found && dladdr(found, &object));
        printf("%s: %s\n", names[i], strstr(object.dli_fname, "libcuda.so") ? "the driver's" : "another's");
    }
    return 0;
}
