/* build: -Ibenches blocking-driver/libcuda.so.1; run: P2PSHIM_VERIFY=off waits_destroyed on blocking-driver
 * A thread destroys a stream while another's copy is inside the driver, which makes an event for p2pshim and blocks: the destroying thread
 * does not wait for it, and a signal reaches it.
 *
 * The copies before have not ended, so that p2pshim has to make events for new streams. Without p2pshim nothing blocks.
 */
#include <semaphore.h>

#include "check.h"
#include "lib/blocking_driver.h"
#include "null_cuda.h"

/* More streams than p2pshim has events for, whatever it makes at a time. */
enum { BYTES = 1 << 20, WARM_UPS = 40, STREAMS = 20000, GIVES_UP_MS = 5000 };

static void *contexts[DEVICES];
static sem_t inside, go_on;
static volatile int is_destroyed, is_signalled;

static void block(void)
{
    blocking_on_event(NULL);
    sem_post(&inside);
    sem_wait(&go_on);
}

static void on_signal(int signal)
{
    (void)signal;
    is_signalled = 1;
}

static void copy(void *stream)
{
    REQUIRE(cuMemcpyPeerAsync(LARGE(1), contexts[1], LARGE(0), contexts[0], BYTES, stream) == 0);
}

static void *new_stream(void)
{
    void *stream;
    REQUIRE(cuStreamCreate(&stream, 1) == 0);
    return stream;
}

static void *copies(void *data)
{
    blocking_on_event(block);
    for (int i = 0; i < STREAMS; i++)
        copy(new_stream());
    blocking_on_event(NULL);
    sem_post(&inside);
    return data;
}

static void *destroys(void *stream)
{
    REQUIRE(cuStreamDestroy_v2(stream) == 0);
    is_destroyed = 1;
    for (int i = 0; i < GIVES_UP_MS && !is_signalled; i++)
        sleep_for(1);
    return NULL;
}

/* Whether something comes true, on any machine before long. */
static int becomes(volatile int *what)
{
    for (int i = 0; i < GIVES_UP_MS && !*what; i++)
        sleep_for(1);
    return *what;
}

int main(void)
{
    pthread_t copying, destroying;
    REQUIRE(sem_init(&inside, 0, 0) == 0 && sem_init(&go_on, 0, 0) == 0);
    REQUIRE(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART}, NULL) == 0);
    for (int device = 0; device < DEVICES; device++)
        REQUIRE(cuDevicePrimaryCtxRetain(&contexts[device], device) == 0);
    void *stream = new_stream(), *other = new_stream();
    for (int i = 0; i < WARM_UPS; i++) {
        copy(stream);
        copy(other);
    }
    REQUIRE(pthread_create(&copying, NULL, copies, NULL) == 0);
    REQUIRE(sem_wait(&inside) == 0);
    REQUIRE(pthread_create(&destroying, NULL, destroys, other) == 0);
    printf("the destroying thread %s\n", becomes(&is_destroyed) ? "does not wait" : "WAITS");
    REQUIRE(pthread_kill(destroying, SIGUSR1) == 0);
    printf("a signal %s it\n", becomes(&is_signalled) ? "reaches" : "DOES NOT REACH");
    REQUIRE(sem_post(&go_on) == 0);
    REQUIRE(pthread_join(copying, NULL) == 0 && pthread_join(destroying, NULL) == 0);
    printf("end\n");
    return 0;
}
