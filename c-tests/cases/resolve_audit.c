/* build: -Wl,-rpath,$ORIGIN; run: resolve_audit v1|v2 REQUESTS on standin-driver
 * Asks a libcuda.so.1 for driver functions as NVIDIA's runtime does: dlopen, one dlsym, then that function for everything.
 * Reads the requests ("name version flags", a line each) from the file given and prints each with the library that the
 * function lies in.
 */
#include <inttypes.h>

#include "check.h"

typedef int v1_fn(const char *, void **, int, uint64_t);
typedef int v2_fn(const char *, void **, int, uint64_t, int *);

static const char *library_of(void *function)
{
    Dl_info info;
    if (!function || !dladdr(function, &info))
        return "nowhere";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 3);
    int v2 = strcmp(argv[1], "v2") == 0, version;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    FILE *requests = fopen(argv[2], "r");
    REQUIRE(cuda && requests);
    void *get = dlsym(cuda, v2 ? "cuGetProcAddress_v2" : "cuGetProcAddress");
    REQUIRE(get);
    printf("%s itself: %s\n", argv[1], library_of(get));

    char name[96];
    uint64_t flags;
    while (fscanf(requests, "%95s %d %" SCNu64, name, &version, &flags) == 3) {
        void *function = NULL;
        int error = v2 ? ((v2_fn *)get)(name, &function, version, flags, NULL) : ((v1_fn *)get)(name, &function, version, flags);
        printf("%s %d %" PRIu64 ": %d %s\n", name, version, flags, error, library_of(function));
    }
    return 0;
}
