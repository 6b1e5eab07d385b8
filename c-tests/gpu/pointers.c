/* build: static; run: pointers on gpu
 * Whether cuGetProcAddress hands out the very functions that the driver exports: the shim tells the forms of a function
 * apart by the pointer where it does, and by version and flags where it does not.
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>

typedef int (*get_proc_address)(const char *, void **, int, unsigned long long, int *);

int main(void)
{
    static const struct {
        const char *base, *exported;
        int version;
        unsigned long long flags;
    } forms[] = {
        {"cuMemcpyPeer", "cuMemcpyPeer", 4000, 0},
        {"cuMemcpyPeer", "cuMemcpyPeer_ptds", 7000, 2},
        {"cuMemcpyPeerAsync", "cuMemcpyPeerAsync", 4000, 0},
        {"cuMemcpyPeerAsync", "cuMemcpyPeerAsync_ptsz", 7000, 2},
        {"cuMemcpy3DPeer", "cuMemcpy3DPeer", 4000, 0},
        {"cuMemcpy3DPeer", "cuMemcpy3DPeer_ptds", 7000, 2},
        {"cuMemcpy3DPeerAsync", "cuMemcpy3DPeerAsync", 4000, 0},
        {"cuMemcpy3DPeerAsync", "cuMemcpy3DPeerAsync_ptsz", 7000, 2},
        {"cuCtxEnablePeerAccess", "cuCtxEnablePeerAccess", 4000, 0},
        {"cuDeviceGetP2PAttribute", "cuDeviceGetP2PAttribute", 8000, 0},
        {"cuGetProcAddress", "cuGetProcAddress", 11030, 0},
        {"cuGetProcAddress", "cuGetProcAddress_v2", 12000, 0},
    };
    enum { FORMS = sizeof forms / sizeof *forms };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    get_proc_address ask = driver ? (get_proc_address)dlsym(driver, "cuGetProcAddress_v2") : NULL;
    int equal = 0;

    if (!ask) {
        printf("no driver\n");
        return 1;
    }
    for (int i = 0; i < FORMS; i++) {
        void *found = NULL;
        int status = -1;
        if (ask(forms[i].base, &found, forms[i].version, forms[i].flags, &status) != 0 || !found) {
            printf("%s at %d is not found\n", forms[i].base, forms[i].version);
            return 1;
        }
        if (found == dlsym(driver, forms[i].exported))
            equal++;
        else
            printf("%s differs; ", forms[i].exported);
    }
    printf("%d of %d forms are the exported functions\n", equal, (int)FORMS);
    return 0;
}
