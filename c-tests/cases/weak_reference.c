/* build: -Wl,-rpath,$ORIGIN; run: weak_reference on nothing
 * A weak, unversioned reference to a peer copy in a program with no CUDA. Plain, it is NULL. Preloaded, it is not: a
 * preload library cannot export a name and hide it from a weak reference. The function then answers that the runtime is
 * not there, and does not crash.
 */
#include <stddef.h>
#include <stdio.h>

__attribute__((weak)) int cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t count);

int main(void)
{
    int (*volatile copy)(void *, int, const void *, int, size_t) = cudaMemcpyPeer;
    printf("cudaMemcpyPeer: %s\n", copy ? "there" : "not there");
    if (copy)
        printf("called: %d\n", copy(NULL, 1, NULL, 0, 0));
    return 0;
}
