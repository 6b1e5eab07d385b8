/* build: driver; run: nvml_status unseen|seen|used on sim
 * What NVML says of peer access from one GPU to another, found by dlsym as NCCL does: READ, WRITE, NVLINK and ATOMICS.
 *
 *   unseen   CUDA is not started: the process sees no GPU by it
 *   seen     it is
 *   used     and there is a context on each device
 */
#include <cuda.h>
#include "check.h"

typedef int status_function(void *one, void *other, int index, int *status);
typedef int handle_function(unsigned index, void **device);

int main(int argc, char **argv)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *devices[2];
    REQUIRE(argc == 2 && library != NULL);
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    handle_function *handle = (handle_function *)dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    status_function *status_of = (status_function *)dlsym(library, "nvmlDeviceGetP2PStatus");
    REQUIRE(init != NULL && handle != NULL && status_of != NULL && init() == 0);
    if (strcmp(argv[1], "unseen") != 0)
        CHECK_CU(cuInit(0));
    for (int device = 0; device < 2; device++) {
        CUcontext context;
        if (strcmp(argv[1], "used") == 0)
            CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
        REQUIRE(handle((unsigned)device, &devices[device]) == 0);
    }
    for (int one = 0; one < 2; one++) {
        printf("%d>%d:", one, !one);
        for (int index = 0; index < 4; index++) {
            int status = -1;
            REQUIRE(status_of(devices[one], devices[!one], index, &status) == 0);
            printf(" %d", status);
            /* NCCL asks about a device and itself as well. */
            REQUIRE(status_of(devices[one], devices[one], index, &status) == 0 && status == 0);
        }
        printf("\n");
    }
    return 0;
}
