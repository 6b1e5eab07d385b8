/* start_cost ROUNDS LIBRARY: runs /bin/true plain and with LIBRARY preloaded, in turn. A line a round:
 * wall time in µs and peak memory in KiB, plain, then the same preloaded.
 *
 * Linked statically: until it runs the new program a child counts its parent's memory as its own, so
 * the parent must be smaller than /bin/true. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

/* This program's own peak; its ru_maxrss counts that of its parent too. */
static long own_peak_kib(void)
{
	char line[256];
	long kib = -1;
	FILE *status = fopen("/proc/self/status", "r");
	while (status && kib < 0 && fgets(line, sizeof line, status))
		sscanf(line, "VmHWM: %ld", &kib);
	if (status)
		fclose(status);
	return kib;
}

struct cost {
	double us;
	long kib;
};

static struct cost run_true(char *const *environment)
{
	struct timespec from, to;
	struct rusage child;
	pid_t pid;
	int status;

	clock_gettime(CLOCK_MONOTONIC, &from);
	if (posix_spawn(&pid, "/bin/true", NULL, NULL, (char *[]){ "true", NULL }, environment) ||
	    wait4(pid, &status, 0, &child) != pid || status != 0) {
		fprintf(stderr, "start_cost: /bin/true did not run or failed\n");
		exit(2);
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	long own = own_peak_kib();
	if (own < 0 || own >= child.ru_maxrss) {
		fprintf(stderr, "start_cost: %ld KiB of its own hide the child's %ld\n", own, child.ru_maxrss);
		exit(2);
	}
	return (struct cost){ (to.tv_sec - from.tv_sec) * 1e6 + (to.tv_nsec - from.tv_nsec) / 1e3, child.ru_maxrss };
}

int main(int argc, char **argv)
{
	static char preload[4096];
	if (argc != 3 || snprintf(preload, sizeof preload, "LD_PRELOAD=%s", argv[2]) >= (int)sizeof preload) {
		fprintf(stderr, "usage: start_cost ROUNDS LIBRARY\n");
		return 2;
	}
	for (int round = atoi(argv[1]); round > 0; round--) {
		struct cost plain = run_true((char *[]){ NULL });
		struct cost preloaded = run_true((char *[]){ preload, NULL });
		printf("%.1f %ld %.1f %ld\n", plain.us, plain.kib, preloaded.us, preloaded.kib);
	}
	return 0;
}
