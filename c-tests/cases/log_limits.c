/* build: runtime old; run: log_limits descriptors|size on sim
 * A log must not disturb what the program does with its own descriptors and limits.
 *
 *   descriptors    the lowest free descriptor is the program's
 *   size           files may not grow beyond what the log soon reaches; SIGXFSZ has its default action
 */
#include <cuda_runtime_api.h>
#include <sys/resource.h>

#include "check.h"

enum { CALLS = 200, LIMIT = 8192 };

int main(int argc, char **argv)
{
    int can;
    REQUIRE(argc == 2);
    if (strcmp(argv[1], "size") == 0) {
        struct rlimit limit = {LIMIT, LIMIT};
        REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    } else {
        REQUIRE(close(STDIN_FILENO) == 0);
    }
    for (int i = 0; i < CALLS; i++)
        CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    if (strcmp(argv[1], "descriptors") == 0)
        printf("the next descriptor is %d\n", open("/dev/null", O_RDONLY));
    printf("%d calls\n", CALLS);
    return 0;
}
