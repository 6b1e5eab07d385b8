/* build: cudart12 -Wl,-rpath,$ORIGIN; run: two_majors on sim
 * Three runtimes in one process: the program is linked with libcudart.so.12, one plugin carries .13 and another .11.0,
 * both loaded with RTLD_LOCAL. Each must reach its own: an error shows in the last-error slot of the runtime it was made
 * with, and in no other.
 */
#include <cuda_runtime_api.h>

#include "check.h"
#include "lib/plugin.h"

static void print_slots(const struct plugin *p13, const struct plugin *p11)
{
    int of12 = (int)cudaGetLastError(), of13 = p13->last_error(), of11 = p11->last_error();
    printf("    last error of 12: %d, of 13: %d, of 11: %d\n", of12, of13, of11);
}

int main(void)
{
    int version = 0;
    struct plugin p13 = plugin_load("libplugin-13.so"), p11 = plugin_load("libplugin-11.so");
    CHECK(cudaRuntimeGetVersion(&version));
    printf("majors: %d, %d, %d\n", version / 1000, p13.version() / 1000, p11.version() / 1000);
    REQUIRE(version / 1000 == 12 && p13.version() / 1000 == 13 && p11.version() / 1000 == 11);
    printf("a copy by 13: %d\n", p13.copy());
    printf("a copy by 11: %d\n", p11.copy());
    print_slots(&p13, &p11);

    printf("an error in 12: %d\n", (int)cudaMemcpyPeer(NULL, 99, NULL, 0, 1));
    print_slots(&p13, &p11);
    printf("an error in 13: %d\n", p13.provoke(1));
    print_slots(&p13, &p11);
    printf("an error in 11: %d\n", p11.provoke(1));
    print_slots(&p13, &p11);

    printf("a different one in each: %d\n", p13.provoke(2));
    printf("    and %d\n", p11.provoke(1));
    print_slots(&p13, &p11);
    return 0;
}
