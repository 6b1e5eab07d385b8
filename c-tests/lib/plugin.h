/* A plugin that carries a CUDA runtime of its own: lib/plugin.c, linked with one version or another. */
#ifndef P2PSHIM_C_TESTS_PLUGIN_H
#define P2PSHIM_C_TESTS_PLUGIN_H

#include "check.h"

struct plugin {
    const char *file;
    void *handle;
    int (*version)(void);    /* of its runtime, cudaRuntimeGetVersion */
    int (*copy)(void);       /* a good copy between two GPUs: 0 if every byte arrived */
    int (*provoke)(int);     /* an error by a peer call: 1 for an invalid device, 2 for peer access that is not enabled */
    int (*last_error)(void); /* cudaGetLastError */
};

static inline struct plugin plugin_load(const char *file)
{
    struct plugin p = {.file = file, .handle = dlopen(file, RTLD_NOW | RTLD_LOCAL)};
    if (!p.handle)
        check_failed(file, 0, "dlopen", dlerror());
    *(void **)&p.version = dlsym(p.handle, "plugin_version");
    *(void **)&p.copy = dlsym(p.handle, "plugin_copy");
    *(void **)&p.provoke = dlsym(p.handle, "plugin_provoke");
    *(void **)&p.last_error = dlsym(p.handle, "plugin_last_error");
    REQUIRE(p.version && p.copy && p.provoke && p.last_error);
    return p;
}

#endif
