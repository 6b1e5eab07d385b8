/* build: -Wl,-rpath,$ORIGIN; run: lookup_absent on nothing
 * A program without CUDA asks for CUDA functions, to find out whether there is a GPU. The answer must stay no: NULL, with
 * dlerror set, though a preloaded library exports such names.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int found;

static void look_up(const char *where, void *handle, const char *name)
{
    dlerror();
    void *function = dlsym(handle, name);
    const char *error = dlerror();
    /* In front of that it names the object that asked, where a preload library cannot but name itself. */
    const char *symbol = error ? strstr(error, "undefined symbol") : NULL;
    found += function != NULL;
    printf("%s, %s: %s, dlerror: %s\n", where, name, function ? "found" : "NULL", symbol ? symbol : "none");
}

int main(void)
{
    static const char *names[] = {"cudaMemcpyPeer", "cuMemcpyPeer", "cuGetProcAddress", "cuGetProcAddress_v2",
                                  "cudaDeviceCanAccessPeer", "cudaMemcpyPear", "cuLaunchKernel", "hipMalloc"};
    void *math = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL), *self = dlopen(NULL, RTLD_NOW);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        look_up("RTLD_DEFAULT", RTLD_DEFAULT, names[i]);
        look_up("RTLD_NEXT", RTLD_NEXT, names[i]);
        look_up("dlopen(NULL)", self, names[i]);
        look_up("libm", math, names[i]);
    }
    printf("and a name that is there: %s\n", dlsym(math, "cos") && dlsym(RTLD_DEFAULT, "printf") ? "found" : "NULL");
    return found != 0;
}
