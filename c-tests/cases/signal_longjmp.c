/* build: runtime old; run: signal_longjmp on sim
 * Signal handlers leave peer calls by siglongjmp, wherever they strike: in the program, in the runtime or in whatever
 * stands between. Afterwards calls answer as before.
 */
#include <cuda_runtime_api.h>
#include <sys/time.h>

#include "check.h"

enum { JUMPS = 100, INTERVAL_US = 400 };

static sigjmp_buf back;
static volatile sig_atomic_t armed;

static void on_alarm(int signal)
{
    (void)signal;
    if (armed) {
        armed = 0;
        siglongjmp(back, 1);
    }
}

static void tick(int microseconds)
{
    struct itimerval interval = {{0, microseconds}, {0, microseconds}};
    REQUIRE(setitimer(ITIMER_REAL, &interval, NULL) == 0);
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_alarm};
    volatile int jumps = 0;
    int can, value;
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    REQUIRE(sigaction(SIGALRM, &action, NULL) == 0);
    tick(INTERVAL_US);
    while (jumps < JUMPS) {
        if (sigsetjmp(back, 1)) {
            jumps++;
            continue;
        }
        armed = 1;
        /* A query that the runtime answers without a lock of its own. */
        while (armed)
            cudaDeviceCanAccessPeer(NULL, 0, 1);
    }
    tick(0);
    armed = 0;
    cudaGetLastError();
    /* From where the last one was left: what lies deeper on the stack could still be inside it, for all that can be seen. */
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    SHOW(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 1));
    SHOW(cudaDeviceEnablePeerAccess(1, 0));
    return 0;
}
