/* build -frames: static_runtime.c -Ic-tests/lib -O0 -fno-omit-frame-pointer; run: call_sites WHAT on sim
 * build -plain: static_runtime.c -Ic-tests/lib -O2 -fomit-frame-pointer
 * build -stripped: static_runtime.c -Ic-tests/lib -O2 -fomit-frame-pointer -s
 * build -shared: unseen-runtime/libcudart.so.99 -Ic-tests/lib -DcudaMemcpyPeerAsync=cudaMemcpyUnseen -DcudaMalloc=cudaMallocUnseen -DcudaSetDevice=cudaSetDeviceUnseen -Wl,-rpath,$ORIGIN/unseen-runtime
 * Copies by a runtime that is linked into the program, from places that an unwinder finds, and from stacks that it must survive.
 * WHAT says which: see main. The runtime is a stand-in for NVIDIA's static one: with all that helps to unwind (-frames), with nothing that is
 * not needed (-plain), and without symbols (-stripped); or a shared one that copies by a function that has no row, of a version that nobody has
 * (-shared).
 */
#include "static_runtime.h"

#include "check.h"

#include <ucontext.h>

#define NOINLINE __attribute__((noinline))

enum { BYTES = 4096, STACK_BYTES = 256 << 10 };

static void *to, *from;
volatile int copied;

/* In the middle of a program's own names: one that sounds like the runtime's. */
NOINLINE void cudaCopyOfOurs(size_t bytes)
{
	REQUIRE(cudaMemcpyPeerAsync(to, 1, from, 0, bytes, NULL) == 0);
	copied++;
}

NOINLINE void copy_first(void)
{
	REQUIRE(cudaMemcpyPeerAsync(to, 1, from, 0, BYTES, NULL) == 0);
	copied++;
}

NOINLINE void copy_second(void)
{
	REQUIRE(cudaMemcpyPeerAsync(to, 1, from, 0, BYTES, NULL) == 0);
	copied++;
}

/* With a frame that the tables describe by an expression or a register, and not by the stack pointer alone. */
NOINLINE void copy_aligned(int count)
{
	volatile char room[16 + count] __attribute__((aligned(64)));

	room[0] = 0;
	REQUIRE(cudaMemcpyPeerAsync(to, 1, from, 0, 2 * BYTES, NULL) == 0);
	copied += 1 + room[0];
}

NOINLINE int copy_deep(int depth)
{
	volatile int here = depth;

	if (depth == 0)
		cudaCopyOfOurs(4 * BYTES);
	else
		here += copy_deep(depth - 1);
	return here;
}

/* Nothing says how to leave it. */
void copy_without_rules(void (*copy)(size_t), size_t bytes);
__asm__(".text\n.type copy_without_rules, %function\ncopy_without_rules:\n"
#ifdef __aarch64__
	"str x30, [sp, #-32]!\nmov x9, x0\nmov x0, x1\nblr x9\nldr x30, [sp], #32\nret\n"
#else
	"sub $24, %rsp\nmov %rdi, %rax\nmov %rsi, %rdi\ncall *%rax\nadd $24, %rsp\nret\n"
#endif
	".size copy_without_rules, . - copy_without_rules\n");

static void in_handler(int signal)
{
	(void)signal;
	cudaCopyOfOurs(16 * BYTES);
}

static void on_own_stack(void)
{
	char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t alternative = { .ss_sp = malloc(STACK_BYTES), .ss_size = STACK_BYTES };
	struct sigaction action = { .sa_handler = in_handler, .sa_flags = SA_ONSTACK };

	REQUIRE(stack != MAP_FAILED && sigaltstack(&alternative, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	raise(SIGUSR1);
}

static ucontext_t back, coroutine;

static void in_coroutine(void)
{
	for (int time = 0; time < 4; time++) {
		cudaCopyOfOurs(8 * BYTES);
		swapcontext(&coroutine, &back);
	}
}

static void by_coroutine(void)
{
	getcontext(&coroutine);
	coroutine.uc_stack = (stack_t){ .ss_sp = malloc(STACK_BYTES), .ss_size = STACK_BYTES };
	makecontext(&coroutine, in_coroutine, 0);
	for (int time = 0; time < 4; time++)
		swapcontext(&back, &coroutine);
}

/* On a stack of which nothing is mapped above the function. */
static void at_end_of_mapping(void)
{
	char *stack = mmap(NULL, STACK_BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *end = stack + STACK_BYTES;

	REQUIRE(stack != MAP_FAILED && munmap(end, 4096) == 0);
	for (int time = 0; time < 4; time++) {
#ifdef __aarch64__
		__asm__ volatile("mov x20, sp\nmov sp, %[end]\nmov x0, %[bytes]\nblr %[copy]\nmov sp, x20\n"
				 :
				 : [end] "r"(end), [bytes] "r"((size_t)8 * BYTES), [copy] "r"(cudaCopyOfOurs)
				 : "memory", "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
				   "x16", "x17", "x18", "x20", "x30", "cc");
#else
		register char *top __asm__("rbx") = end;
		size_t bytes = 8 * BYTES;

		__asm__ volatile("xchg %%rbx, %%rsp\ncall *%[copy]\nmov %%rbx, %%rsp\n"
				 : "+r"(top), "+D"(bytes)
				 : [copy] "r"(cudaCopyOfOurs)
				 : "memory", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "cc");
#endif
	}
}

static uint64_t next_random(void)
{
	static uint64_t state = 0x9e3779b97f4a7c15;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* What might stand on a broken stack: nothing, anything, and what looks as if it were right. */
static uint64_t rubbish(const uint64_t *frame)
{
	switch (next_random() % 8) {
	case 0: return 0;
	case 1: return next_random();
	case 2: return next_random() >> 17;
	case 3: return (uint64_t)frame + next_random() % 8192 - 2048;
	case 4: return (uint64_t)cudaCopyOfOurs + next_random() % 4096 - 1024;
	case 5: return (uint64_t)malloc + next_random() % 65536;
	case 6: return (uint64_t)to + next_random() % 4096;
	default: return ~(uint64_t)0 - next_random() % 64;
	}
}

static uint64_t saved[512];

/* Copies while all that lies above this function's frame is rubbish. */
NOINLINE void copy_from_rubbish(uint64_t *frame, size_t words, size_t bytes)
{
	memcpy(saved, frame, words * sizeof *frame);
	for (size_t word = 0; word < words; word++)
		frame[word] = next_random() % 4 ? rubbish(frame) : frame[word];
	cudaMemcpyPeerAsync(to, 1, from, 0, bytes, NULL);
	memcpy(frame, saved, words * sizeof *frame);
	copied++;
}

NOINLINE void among_rubbish(int times)
{
	for (int time = 0; time < times; time++)
		copy_from_rubbish(__builtin_frame_address(0), 64 + time % 400, BYTES);
}

/* Room for rubbish, so that it does not reach the environment, which the driver may read meanwhile. */
NOINLINE void below_room(int times)
{
	volatile uint64_t room[600];

	room[0] = room[599] = 0;
	among_rubbish(times);
	copied += (int)(room[0] + room[599]);
}

static void *in_thread(void *unused)
{
	REQUIRE(cudaSetDevice(0) == 0);
	copy_second();
	return unused;
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "sites";
	pthread_t thread;

	REQUIRE(cudaSetDevice(1) == 0 && cudaMalloc(&to, 16 * BYTES) == 0);
	REQUIRE(cudaSetDevice(0) == 0 && cudaMalloc(&from, 16 * BYTES) == 0);
	if (strcmp(what, "sites") == 0) {
		for (int time = 0; time < 40; time++) {
			copy_first();
			copy_second();
		}
		copy_aligned(count);
		copy_deep(100);
		REQUIRE(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
	} else if (strcmp(what, "mistake") == 0) {
		cudaMemcpyPeerAsync(to, 1, NULL, 0, BYTES, NULL);
		for (int time = 0; time < 40; time++)
			copy_first();
	} else {
		on_own_stack();
		by_coroutine();
		at_end_of_mapping();
		copy_without_rules(cudaCopyOfOurs, 2 * BYTES);
		below_room(3000);
	}
	printf("%d copies\n", copied);
	return 0;
}
