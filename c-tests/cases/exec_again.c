/* build: runtime old; run: exec_again on sim
 * A copy, then the program again in the same process (execv), which makes two.
 */
#include <cuda_runtime_api.h>

#include "check.h"

int main(int argc, char **argv)
{
    void *to, *from;
    to = device_memory(1, 64);
    from = device_memory(0, 64);
    SHOW(cudaMemcpyPeer(to, 1, from, 0, 64));
    fflush(stdout);
    if (argc == 1) {
        execv("/proc/self/exe", (char *[]){argv[0], "again", NULL});
        return 1;
    }
    SHOW(cudaMemcpyPeer(to, 1, from, 0, 64));
    return 0;
}
