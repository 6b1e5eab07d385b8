/* build: nvcc; run: cupti_traces on gpu
 * What other tracers are made of, for comparison: CUPTI's activity records of peer copies, or its callbacks at each call of the
 * runtime and the driver, by CUPTI_TRACES=activity or callbacks. Loaded by CUDA_INJECTION64_PATH. What is recorded is only
 * counted, and printed at exit.
 */
#include <cupti.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic long seen;

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *most)
{
    *size = 8 << 20;
    *buffer = aligned_alloc(64, *size);
    *most = 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    CUpti_Activity *record = NULL;
    (void)context, (void)stream, (void)size;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        seen++;
    free(buffer);
}

static void CUPTIAPI call(void *data, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *about)
{
    (void)data, (void)domain, (void)id, (void)about;
    seen++;
}

static void print_seen(void)
{
    if (strcmp(getenv("CUPTI_TRACES"), "activity") == 0)
        cuptiActivityFlushAll(1);
    fprintf(stderr, "cupti: %ld seen\n", (long)seen);
}

int InitializeInjection(void)
{
    static CUpti_SubscriberHandle subscriber;
    const char *how = getenv("CUPTI_TRACES");
    if (how && strcmp(how, "activity") == 0) {
        cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY2);
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME);
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER);
    } else if (how) {
        cuptiSubscribe(&subscriber, call, NULL);
        cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API);
        cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
    }
    if (how)
        atexit(print_seen);
    return 1;
}
