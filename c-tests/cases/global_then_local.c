/* build: -Wl,-rpath,$ORIGIN; run: global_then_local on sim
 * One runtime loaded with RTLD_GLOBAL, then another by a plugin with RTLD_LOCAL. RTLD_DEFAULT finds the global one; the
 * plugin keeps its own.
 */
#include "check.h"
#include "lib/plugin.h"

int main(void)
{
    REQUIRE(dlsym(RTLD_DEFAULT, "cudaMemcpyPeer") == NULL);
    REQUIRE(dlopen("libcudart.so.13", RTLD_NOW | RTLD_GLOBAL));
    struct plugin p12 = plugin_load("libplugin-12.so");
    int (*copy)(void *, int, const void *, int, size_t), (*last_error)(void), (*version)(int *), number = 0;
    *(void **)&copy = dlsym(RTLD_DEFAULT, "cudaMemcpyPeer");
    *(void **)&last_error = dlsym(RTLD_DEFAULT, "cudaGetLastError");
    *(void **)&version = dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion");
    REQUIRE(copy && last_error && version);
    REQUIRE(version(&number) == 0);
    printf("majors: %d, %d\n", number / 1000, p12.version() / 1000);
    printf("plugin's copy: %d\n", p12.copy());

    printf("an error in the global one: %d\n", copy(NULL, 99, NULL, 0, 1));
    printf("    last error of the global one: %d, of the plugin's: %d\n", last_error(), p12.last_error());
    printf("an error in the plugin's: %d\n", p12.provoke(2));
    printf("    last error of the global one: %d, of the plugin's: %d\n", last_error(), p12.last_error());
    return 0;
}
