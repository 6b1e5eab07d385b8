/* build: -Wl,-rpath,$ORIGIN; run: deepbind [first] on sim
 * A plugin that carries a CUDA runtime, opened with RTLD_DEEPBIND: it prefers its own libraries' symbols to those of a preload.
 *
 *   first   the program has opened the runtime itself before, in the ordinary way
 */
#include "../lib/plugin.h"

int main(int argc, char **argv)
{
    int (*copy)(void);
    if (argc > 1 && argv[1][0] == 'f')
        REQUIRE(dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL));
    void *plugin = dlopen("libplugin-12.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    REQUIRE(plugin);
    *(void **)&copy = dlsym(plugin, "plugin_copy");
    REQUIRE(copy);
    printf("copied: %d\n", copy());
    return 0;
}
