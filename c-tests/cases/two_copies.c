/* build: -Wl,-rpath,$ORIGIN; run: two_copies on sim
 * Two copies of the same runtime in one process, under different file names, each brought by a plugin with RTLD_LOCAL, as
 * Python wheels bring them. Their symbols and versions are the same; only the caller tells them apart.
 */
#include "check.h"
#include "lib/plugin.h"

static void print_slots(const struct plugin *one, const struct plugin *other)
{
    int of_one = one->last_error(), of_other = other->last_error();
    printf("    last error of one: %d, of the other: %d\n", of_one, of_other);
}

int main(void)
{
    struct plugin one = plugin_load("libplugin-12.so"), other = plugin_load("libplugin-12-copy.so");
    REQUIRE(dlsym(one.handle, "cudaGetLastError") != dlsym(other.handle, "cudaGetLastError"));
    printf("a copy by one: %d\n", one.copy());
    printf("a copy by the other: %d\n", other.copy());
    print_slots(&one, &other);

    printf("an error in one: %d\n", one.provoke(1));
    print_slots(&one, &other);
    printf("an error in the other: %d\n", other.provoke(1));
    print_slots(&one, &other);
    printf("a different one in each: %d\n", one.provoke(1));
    printf("    and %d\n", other.provoke(2));
    print_slots(&one, &other);

    /* The same by look-up: each handle leads to its own copy. */
    int (*copy_one)(void *, int, const void *, int, size_t), (*copy_other)(void *, int, const void *, int, size_t);
    *(void **)&copy_one = dlsym(one.handle, "cudaMemcpyPeer");
    *(void **)&copy_other = dlsym(other.handle, "cudaMemcpyPeer");
    REQUIRE(copy_one && copy_other);
    printf("looked up, an error in one: %d\n", copy_one(NULL, 99, NULL, 0, 1));
    print_slots(&one, &other);
    printf("looked up, an error in the other: %d\n", copy_other(NULL, 99, NULL, 0, 1));
    print_slots(&one, &other);
    return 0;
}
