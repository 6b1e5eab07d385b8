/* build: runtime old; run: closed_stderr late|early on sim
 * Descriptor 2 closed and given to a file of the program, as daemons do: nothing that was not the program's own may land
 * in that file, however much is logged.
 *
 *   late     after the first CUDA call
 *   early    before it
 */
#include <cuda_runtime_api.h>
#include <sys/stat.h>

#include "check.h"

enum { COUNT = 1000 };

static void peer_calls(void)
{
    static void *a, *b;
    int can = -7;
    b = device_memory(1, COUNT);
    a = device_memory(0, COUNT);
    SHOW(cudaDeviceCanAccessPeer(&can, 0, 1));
    SHOW(cudaMemcpyPeer(b, 1, a, 0, COUNT));
    SHOW(cudaMemcpyPeer(b, 99, a, 0, COUNT));
    SHOW(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    struct stat file;
    if (argc > 1 && strcmp(argv[1], "late") == 0)
        peer_calls();
    close(STDERR_FILENO);
    if (open("/tmp", O_TMPFILE | O_RDWR, 0600) != STDERR_FILENO) {
        printf("the file did not get descriptor 2\n");
        return 1;
    }
    REQUIRE(write(STDERR_FILENO, "mine\n", 5) == 5);
    peer_calls();
    REQUIRE(fstat(STDERR_FILENO, &file) == 0);
    printf("the program wrote 5 bytes, the file has %d\n", (int)file.st_size);
    return file.st_size == 5 ? 0 : 1;
}
