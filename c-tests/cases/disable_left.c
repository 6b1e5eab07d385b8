/* build: -Ibenches blocking-driver/libcuda.so.1; run: P2PSHIM_VERIFY=off disable_left jump|cancel on blocking-driver
 * A thread leaves cuCtxDisablePeerAccess by longjmp, or ends in it when it is cancelled. After that p2pshim enables access for copies as if
 * the call had returned.
 */
#include <semaphore.h>

#include "check.h"
#include "lib/blocking_driver.h"
#include "null_cuda.h"

int cuCtxDisablePeerAccess(void *peer);

enum { BYTES = 1 << 20, COPIES = 40 };

static void *contexts[DEVICES];
static jmp_buf out;
static sem_t inside, never;

static void copies(void)
{
    for (int i = 0; i < COPIES; i++)
        REQUIRE(cuMemcpyPeerAsync(LARGE(1), contexts[1], LARGE(0), contexts[0], BYTES, NULL) == 0);
}

static void jump(void)
{
    longjmp(out, 1);
}

static void block(void)
{
    sem_post(&inside);
    sem_wait(&never);
}

static void *disables(void *data)
{
    cuCtxDisablePeerAccess(contexts[1]);
    return data;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    REQUIRE(count == 2);
    REQUIRE(sem_init(&inside, 0, 0) == 0 && sem_init(&never, 0, 0) == 0);
    for (int device = 0; device < DEVICES; device++)
        REQUIRE(cuDevicePrimaryCtxRetain(&contexts[device], device) == 0);
    if (strcmp(arguments[1], "jump") == 0) {
        blocking_on_disable(jump);
        if (setjmp(out) == 0)
            disables(NULL);
    } else {
        blocking_on_disable(block);
        REQUIRE(pthread_create(&thread, NULL, disables, NULL) == 0 && sem_wait(&inside) == 0);
        REQUIRE(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
    }
    long before = blocking_enables();
    copies();
    printf("%ld, then %s\n", before, blocking_enables() > before ? "enabled" : "not enabled");
    return 0;
}
