/*
 * p2pshim: makes CUDA peer-to-peer copies fast, correct and observable, without rebuilding the program.
 * Generated from src/capi/ and cbindgen.toml by `make header`; do not edit.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * For every function, unless its text says otherwise:
 *
 * - A pointer is NULL or leads to something of its type: a text ends in NUL, a buffer has as many bytes as the next parameter says, and a
 *   struct as many as its first field, size, says, which the caller sets.
 * - If a pointer is NULL that may not be, or a struct smaller than in any version, it returns P2PSHIM_INVALID_ARGUMENT.
 * - It writes through pointers only if it returns P2PSHIM_OK or P2PSHIM_TOO_SMALL.
 * - Structs grow at the end. A program that was built with an older header gets the fields that it knows; a newer one's fields that the
 *   library does not know stay as they were.
 * - Texts that it returns live as long as the library is loaded, and are never NULL.
 */

#ifndef P2PSHIM_H
#define P2PSHIM_H

#include <stddef.h>
#include <stdint.h>

/* A struct to pass to a function, with its size set and all else 0: p2pshim_state_t state = P2PSHIM_INIT(p2pshim_state_t); */
#ifdef __cplusplus
/** Initialises a struct of this type. */
#define P2PSHIM_INIT(type) [] { type p2pshim_blank = type(); p2pshim_blank.size = sizeof(type); return p2pshim_blank; }()
extern "C" {
#else
/** Initialises a struct of this type. */
#define P2PSHIM_INIT(type) {.size = sizeof(type)}
#endif

/* ---- The version, and the statuses that functions return ---- */

/** Major version of this header; p2pshim_version() tells that of the library. */
#define P2PSHIM_VERSION_MAJOR 0

/** Minor version of this header. */
#define P2PSHIM_VERSION_MINOR 1

/** Patch version of this header. */
#define P2PSHIM_VERSION_PATCH 0

/** The outcome of a function. p2pshim_status_name() and p2pshim_status_text() say it in words. */
typedef enum {
  /** Done. */
  P2PSHIM_OK = 0,
  /** A pointer is NULL, a struct's size is smaller than any version of it, or an argument contradicts another. */
  P2PSHIM_INVALID_ARGUMENT = 1,
  /** The index is not below the count, or there can be no such device. */
  P2PSHIM_OUT_OF_RANGE = 2,
  /** There is no option, function or rule of that name. */
  P2PSHIM_UNKNOWN_NAME = 3,
  /** The option has no such value. */
  P2PSHIM_INVALID_VALUE = 4,
  /** It cannot change any more: the options have been read, or a trace lies elsewhere. */
  P2PSHIM_TOO_LATE = 5,
  /** The text is longer than the buffer; what fits has been written. */
  P2PSHIM_TOO_SMALL = 6,
  /** The shim only forwards calls: P2PSHIM=off, or the process is a forked child. */
  P2PSHIM_INACTIVE = 7,
  /** There is nothing of the kind: no finding yet, no trace, no such callback. */
  P2PSHIM_NOT_FOUND = 8,
  /** No library of the driver is loaded. */
  P2PSHIM_NO_DRIVER = 9,
  /** Copies between the two devices go through the host; p2pshim_pair_state_get() says why. */
  P2PSHIM_STAGED = 10,
  /** The system has refused something; a warning in the log says what. */
  P2PSHIM_SYSTEM_ERROR = 11,
  /** There are as many as there can be. */
  P2PSHIM_FULL = 12,
  /** A fault of the shim, or a call from inside its own work; nothing has changed. */
  P2PSHIM_INTERNAL_ERROR = 13,
  /** Not now: a device has no context yet or is busy, or a stream is being captured. */
  P2PSHIM_NOT_READY = 14,
} p2pshim_status_t;

/**
 * The version of the library.
 *
 * Thread-safety: any thread, at any time, in signal handlers too.
 *
 * @return A text such as "0.1.0", which lives as long as the library.
 */
const char *p2pshim_version(void);

/**
 * The name of a status.
 *
 * Thread-safety: any thread, at any time, in signal handlers too.
 *
 * @param status The value that a function has returned; any number is accepted.
 * @return A text such as "P2PSHIM_OK", which lives as long as the library; "unknown" for a number that is no status.
 */
const char *p2pshim_status_name(int status);

/**
 * The meaning of a status, in a sentence.
 *
 * Thread-safety: any thread, at any time, in signal handlers too.
 *
 * @param status The value that a function has returned; any number is accepted.
 * @return A text that lives as long as the library; "unknown" for a number that is no status.
 */
const char *p2pshim_status_text(int status);

/* ---- The shim in this process: whether it is active, what it has counted, and which libraries it reaches ---- */

/** Programs that are linked with the library call the shim: it was preloaded, or linked first. */
#define P2PSHIM_ROUTE_LINKED 1

/** Functions of the library that were looked up by name (dlsym, cuGetProcAddress) were returned as the shim's. */
#define P2PSHIM_ROUTE_LOOKED_UP 2

/** Linked calls have gone through the shim to the library. */
#define P2PSHIM_ROUTE_CALLED 4

/** The shim may intercept calls, or only forward them. */
typedef enum {
  /** Nothing yet: no function was called. Options can be set. */
  P2PSHIM_ACTIVITY_NOT_STARTED = 0,
  /** It intercepts the calls that reach it; p2pshim_library_get() says which do. */
  P2PSHIM_ACTIVITY_ON = 1,
  /** It only forwards calls: P2PSHIM=off. */
  P2PSHIM_ACTIVITY_OFF = 2,
  /** It only forwards calls: the process is a forked child. */
  P2PSHIM_ACTIVITY_FORKED = 3,
  /** It forwards and counts calls, and does nothing else: it has run out of memory. */
  P2PSHIM_ACTIVITY_EXHAUSTED = 4,
} p2pshim_activity_t;

/** The kind of a library. 0 is none. */
typedef enum {
  /** CUDA's runtime, such as libcudart.so.12. */
  P2PSHIM_LAYER_RUNTIME = 1,
  /** CUDA's driver: libcuda.so.1. */
  P2PSHIM_LAYER_DRIVER = 2,
  /** AMD's runtime, such as libamdhip64.so.6. */
  P2PSHIM_LAYER_HIP = 3,
  /** NVIDIA's library for management: libnvidia-ml.so.1. */
  P2PSHIM_LAYER_NVML = 4,
} p2pshim_layer_t;

/** The shim in this process. */
typedef struct {
  /** Set by the caller: sizeof(p2pshim_state_t). */
  size_t size;
  /** Whether it intercepts calls. */
  p2pshim_activity_t activity;
  /** Whether calls are being recorded: 1 or 0. */
  int recording;
  /** The version of the driver that is loaded, 1000 times the major plus 10 times the minor; 0 for none. */
  int driver_version;
  /** How many devices the process sees; 0 if there is no driver, or it is not initialised yet. */
  int device_count;
  /** How many calls of traced functions (docs/INTERCEPTED.md) were intercepted. */
  uint64_t calls;
  /** How many of them returned an error. */
  uint64_t failures;
} p2pshim_state_t;

/** A library that has intercepted functions: a runtime or a driver. */
typedef struct {
  /** Set by the caller: sizeof(p2pshim_library_t). */
  size_t size;
  /** Its file. */
  const char *path;
  /** Its kind, which is not P2PSHIM_LAYER_NVML. */
  p2pshim_layer_t layer;
  /** By which routes its calls reach the shim: P2PSHIM_ROUTE_LINKED and the others, added up. */
  unsigned int routes;
  /** Which of its calls bypass the shim, and what to do about it; empty if no such calls are known. */
  const char *bypass;
} p2pshim_library_t;

/**
 * Returns whether the shim is active, and what it has intercepted.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers. It asks the loaded driver for its version and its
 * devices, which does not block.
 *
 * @param state Where to write; its size is set.
 * @return P2PSHIM_OK.
 */
p2pshim_status_t p2pshim_state_get(p2pshim_state_t *state);

/**
 * Returns how often an intercepted function was called so far in this process. Only calls of traced functions
 * (docs/INTERCEPTED.md) are counted.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers.
 *
 * @param name The exported name, such as "cudaMemcpyPeer".
 * @param calls Where to write the number of calls; may be NULL.
 * @param failures Where to write how many of these calls returned an error; may be NULL.
 * @return P2PSHIM_OK; P2PSHIM_UNKNOWN_NAME if the shim does not intercept such a function.
 */
p2pshim_status_t p2pshim_calls_get(const char *name, uint64_t *calls, uint64_t *failures);

/**
 * How many runtimes and drivers are loaded now. A statically linked runtime does not count: its calls are intercepted where
 * they reach the driver.
 *
 * Thread-safety: any thread; not in signal handlers, nor in constructors of libraries: it asks the dynamic linker.
 *
 * @return The number of indexes that p2pshim_library_get() takes, until the program loads or unloads one.
 */
size_t p2pshim_library_count(void);

/**
 * Describes a loaded runtime or driver: by which routes its calls reach the shim, and which calls bypass it.
 *
 * Thread-safety: any thread; not in signal handlers, nor in constructors of libraries: it asks the dynamic linker.
 *
 * @param index Which one: below p2pshim_library_count(), in the order of layers and then of loading.
 * @param library Where to write; its size is set.
 * @return P2PSHIM_OK; P2PSHIM_OUT_OF_RANGE if there is no such library, or no longer.
 */
p2pshim_status_t p2pshim_library_get(size_t index, p2pshim_library_t *library);

/* ---- Two devices: whether one can access the other's memory, and what was copied between them ---- */

/** The program has enabled access, between any contexts of the two devices. */
#define P2PSHIM_BY_PROGRAM 1

/** The shim has enabled access. */
#define P2PSHIM_BY_SHIM 2

/** The outcome of verifying the path between two devices. */
typedef enum {
  /** Not verified yet: a pair is verified once it has copied enough. */
  P2PSHIM_VERIFICATION_NONE = 0,
  /** Verified: data arrives in both directions. */
  P2PSHIM_VERIFICATION_PASSED = 1,
  /** The driver says that there is no path. */
  P2PSHIM_VERIFICATION_NO_PATH = 2,
  /** Data is lost, so the pair is blocked; or a copy did not end in time, so it is blocked until it is verified again. */
  P2PSHIM_VERIFICATION_FAILED = 3,
  /** Data arrives, but direct copies are slower than copies through the host. */
  P2PSHIM_VERIFICATION_SLOWER = 4,
} p2pshim_verification_t;

/** The path of a copy. */
typedef enum {
  /** No copy, or copies on several paths. */
  P2PSHIM_PATH_NONE = 0,
  /** From device to device. */
  P2PSHIM_PATH_DIRECT = 1,
  /** From device to device through the host. */
  P2PSHIM_PATH_STAGED = 2,
  /** Inside one device. */
  P2PSHIM_PATH_SAME_DEVICE = 3,
  /** From or to memory of the host. */
  P2PSHIM_PATH_HOST = 4,
  /** Not known: managed memory; with HIP also memory of another process. */
  P2PSHIM_PATH_UNKNOWN = 5,
  /** None yet: the copy became part of a graph. */
  P2PSHIM_PATH_CAPTURED = 6,
  /** From device to device: HIP maps the memory on first use. */
  P2PSHIM_PATH_MAPPED_ON_USE = 7,
} p2pshim_path_t;

/** A device's access to the memory of another. */
typedef struct {
  /** Set by the caller: sizeof(p2pshim_pair_state_t). */
  size_t size;
  /** Whether the hardware allows it, as the driver says: 1, 0, or -1 if it does not say. */
  int possible;
  /** The parties that have enabled it: P2PSHIM_BY_PROGRAM, P2PSHIM_BY_SHIM, both added up, or 0. */
  unsigned int enabled_by;
  /** Whether P2PSHIM_ACCESS or P2PSHIM_DENY hides it from the program: 1 or 0. */
  int denied;
  /** The outcome of verifying the path between the two. */
  p2pshim_verification_t verification;
  /** The outcome for memory of pools. */
  p2pshim_verification_t pool_verification;
  /**
   * The path of copies between them, as of now: of memory of cudaMalloc or cuMemAlloc; pools and mapped memory have access rights
   * of their own.
   */
  p2pshim_path_t path;
  /** Why copies take that path, such as "broken: failed verification"; empty if there is nothing to say. */
  const char *reason;
} p2pshim_pair_state_t;

/** The peer copies of this process from one device to another, as far as they succeeded. A copy counts when it is submitted. */
typedef struct {
  /** Set by the caller: sizeof(p2pshim_pair_t). */
  size_t size;
  /** Copies that went directly from device to device, or stayed in one. */
  uint64_t direct_copies;
  /** Their bytes. */
  uint64_t direct_bytes;
  /** Copies that went through the host. */
  uint64_t staged_copies;
  /** Their bytes. */
  uint64_t staged_bytes;
} p2pshim_pair_t;

/**
 * The name of a path.
 *
 * Thread-safety: any thread, at any time, in signal handlers too.
 *
 * @param path A p2pshim_path_t; any number is accepted.
 * @return A text such as "same-device"; empty for P2PSHIM_PATH_NONE and for numbers that are no path.
 */
const char *p2pshim_path_name(int path);

/**
 * The name of what verifying a path has shown.
 *
 * Thread-safety: any thread, at any time, in signal handlers too.
 *
 * @param verification A p2pshim_verification_t; any number is accepted.
 * @return A text such as "passed"; empty for P2PSHIM_VERIFICATION_NONE and for numbers that are none.
 */
const char *p2pshim_verification_name(int verification);

/**
 * Returns the state of a device's access to the memory of another: whether it is possible, who has enabled it, whether it is
 * verified or blocked, and which path copies take. Before the first intercepted call only the first is known. In a process
 * without CUDA's driver the state is that of HIP, if a copy between the two was seen.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers. It asks the driver whether access is possible, which does
 * not block.
 *
 * @param device The ordinal of the device that accesses.
 * @param peer The ordinal of the device whose memory it is.
 * @param state Where to write; its size is set.
 * @return P2PSHIM_OK; P2PSHIM_OUT_OF_RANGE for ordinals that are negative or above 63; P2PSHIM_INACTIVE in a forked child.
 */
p2pshim_status_t p2pshim_pair_state_get(int device, int peer, p2pshim_pair_state_t *state);

/**
 * Verifies the path between two devices and enables peer access now: else the first copy of more than 1 MiB, or the 17th, does so, and
 * takes some milliseconds longer. Each device needs a context, such as the primary one that the runtime's first call makes. If
 * P2PSHIM_ACCESS is not auto, or P2PSHIM_DENY names the pair, nothing is enabled.
 *
 * If the library was neither linked nor preloaded, it does not see the program's calls: no stream may be being captured, and a
 * cudaDeviceEnablePeerAccess() of the program returns cudaErrorPeerAccessAlreadyEnabled afterwards.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers. It waits for other threads that verify one of the two
 * devices, 5 seconds at most.
 *
 * @param device The ordinal of one device.
 * @param peer The ordinal of the other; access is enabled both ways, as far as the hardware allows it.
 * @return P2PSHIM_OK if copies between the two are direct from now on; P2PSHIM_STAGED if they go through the host, and
 * p2pshim_pair_state_get() says why; P2PSHIM_NOT_READY if a device has no context yet or is busy, a stream is being captured, or the
 * thread's stack is too small; P2PSHIM_OUT_OF_RANGE if there are no two such devices; P2PSHIM_NO_DRIVER without CUDA's driver, in HIP
 * programs too; P2PSHIM_INACTIVE; P2PSHIM_INTERNAL_ERROR.
 */
p2pshim_status_t p2pshim_pair_prepare(int device, int peer);

/**
 * Returns how much was copied from one device to another so far. Copies that other threads make meanwhile may or may not be
 * counted.
 *
 * Thread-safety: any thread, at any time.
 *
 * @param src_device The ordinal of the device that bytes came from.
 * @param dst_device The ordinal of the device that they went to.
 * @param pair Where to write; its size is set.
 * @return P2PSHIM_OK; P2PSHIM_OUT_OF_RANGE for ordinals that are negative or above 31, which are not counted.
 */
p2pshim_status_t p2pshim_pair_get(int src_device, int dst_device, p2pshim_pair_t *pair);

/* ---- The verdict of `p2pshim doctor` and `p2pshim run` on two GPUs, which is kept until the machine is booted again ---- */

/** Copies by the copy engines. */
#define P2PSHIM_PART_COPIES 1

/** Loads of kernels. */
#define P2PSHIM_PART_LOADS 2

/** Stores of kernels. */
#define P2PSHIM_PART_STORES 4

/** Atomic operations of kernels. */
#define P2PSHIM_PART_ATOMICS 8

/** Flags between kernels that run at the same time. */
#define P2PSHIM_PART_FLAGS 16

/** Memory of another process that was opened by an IPC handle. */
#define P2PSHIM_PART_IPC 32

/** Memory of another process that was mapped by a file descriptor (Virtual Memory Management). */
#define P2PSHIM_PART_VMM 64

/** Memory wherever it lies: every program relies on it, as on all other parts whose name begins so. */
#define P2PSHIM_PART_ALL_MEMORY 128

/** All pairs of GPUs at once. */
#define P2PSHIM_PART_ALL_PAIRS 256

/** Flags and data that a kernel reads from the memory of the peer. */
#define P2PSHIM_PART_PULL 512

/** Data with a flag in each 8 bytes, as NCCL's LL protocol has it. */
#define P2PSHIM_PART_LL 1024

/** Lines of 128 bytes that end with a flag, as NCCL's LL128 protocol has it. */
#define P2PSHIM_PART_LL128 2048

/** Kernels of two processes in memory of an IPC handle. */
#define P2PSHIM_PART_IPC_KERNELS 4096

/** Stores of kernels from each GPU to each other one at once. */
#define P2PSHIM_PART_ALL_TO_ALL 8192

/** Copies, loads and stores in memory of a pool, and in mapped memory, to which access was granted. */
#define P2PSHIM_PART_POOLS 16384

/** Copies that a graph makes. */
#define P2PSHIM_PART_GRAPHS 32768

/** All-reduces of all GPUs. */
#define P2PSHIM_PART_ALL_REDUCE 65536

/** Parts of the verdict on one GPU's access to the memory of another: P2PSHIM_PART_COPIES and the others, added up. */
typedef struct {
  /** Set by the caller: sizeof(p2pshim_verdict_t). */
  size_t size;
  /** Parts in which every byte was right. */
  unsigned int right;
  /** Parts in which data was wrong, or that did not end. Those that are neither right nor wrong were not tested. */
  unsigned int wrong;
} p2pshim_verdict_t;

/**
 * Returns the verdict on one GPU's access to the memory of another. It needs no driver and no context. A program that relies on a part
 * that is wrong should go through the host; nothing says that peer access works otherwise.
 *
 * Verdicts of the user and of root are believed, if nobody else can have written them, and if they are of this boot, kernel module, BAR1
 * and IOMMU mode.
 *
 * Thread-safety: any thread; not in signal handlers. It reads a small file or two.
 *
 * @param from The UUID of the GPU that accesses, such as "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".
 * @param to The UUID of the GPU whose memory it is.
 * @param verdict Where to write; its size is set.
 * @return P2PSHIM_OK; P2PSHIM_NOT_FOUND if there is no verdict on the pair.
 */
p2pshim_status_t p2pshim_verdict_get(const char *from, const char *to, p2pshim_verdict_t *verdict);

/* ---- The options: environment variables, whose values a program can ask for and set ---- */

/**
 * Sets an option.
 *
 * Before the first intercepted call the value replaces that of the environment. After it some options can still be changed;
 * the new value applies to calls that begin after this function has returned. docs/OPTIONS.md says which options, and until
 * when. To start a trace, use p2pshim_trace_start().
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers. Of two threads that set the same option one is last.
 *
 * @param name The option's name, such as "P2PSHIM_VALIDATE"; docs/OPTIONS.md has all.
 * @param value One of its values; NULL or "" for the default.
 * @return P2PSHIM_OK, also if it has that value already; P2PSHIM_UNKNOWN_NAME; P2PSHIM_INVALID_VALUE; P2PSHIM_TOO_LATE;
 * P2PSHIM_INACTIVE; P2PSHIM_INTERNAL_ERROR.
 */
p2pshim_status_t p2pshim_option_set(const char *name, const char *value);

/**
 * Returns the value of an option. Before the first intercepted call this is the value that will apply, according to the
 * environment as it is now. An option with an invalid value has its default.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers, and not, before the first intercepted call, while
 * another thread changes the environment.
 *
 * @param name The option's name, such as "P2PSHIM_VALIDATE".
 * @param value Where to write the text, with a terminating NUL; may be NULL if `size` is 0.
 * @param size The size of that buffer in bytes.
 * @param length Where to write how long the text is, without the NUL; may be NULL.
 * @return P2PSHIM_OK; P2PSHIM_TOO_SMALL if the text was cut off; P2PSHIM_UNKNOWN_NAME; P2PSHIM_INACTIVE in a forked child;
 * P2PSHIM_INTERNAL_ERROR.
 */
p2pshim_status_t p2pshim_option_value(const char *name, char *value, size_t size, size_t *length);

/* ---- Findings: how many there were, and the last one ---- */

/** Something that was found wrong with a call. */
typedef struct {
  /** Set by the caller: sizeof(p2pshim_finding_t). */
  size_t size;
  /** The id of the rule, such as "P2P-enable-twice"; `p2pshim explain` explains it. */
  const char *rule;
  /** The function that was called. */
  const char *function;
  /** How many findings this process had by then; distinguishes two findings. */
  uint64_t number;
  /** The code that the function returned; also 0 for a finding before the call. */
  int result;
  /** The thread that called, as the kernel numbers it. */
  int thread;
} p2pshim_finding_t;

/**
 * Returns the last finding of the process, on any thread.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers.
 *
 * @param finding Where to write; its size is set.
 * @param message Where to write the full text of the finding, as in the log, with a terminating NUL; may be NULL if `size` is 0.
 * @param size The size of that buffer in bytes.
 * @return P2PSHIM_OK; P2PSHIM_TOO_SMALL if the message was cut off, unless `size` is 0; P2PSHIM_NOT_FOUND if there was no finding
 * yet; P2PSHIM_INACTIVE in a forked child.
 */
p2pshim_status_t p2pshim_finding_last(p2pshim_finding_t *finding, char *message, size_t size);

/**
 * Returns how often calls broke a rule so far in this process.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers.
 *
 * @param rule The id of the rule, such as "P2P-enable-twice".
 * @param count Where to write the number of findings; may be NULL.
 * @return P2PSHIM_OK; P2PSHIM_UNKNOWN_NAME if there is no such rule.
 */
p2pshim_status_t p2pshim_findings_get(const char *rule, uint64_t *count);

/* ---- The trace: started, stopped and marked by the program ---- */

/** The trace of this process. */
typedef struct {
  /** Set by the caller: sizeof(p2pshim_trace_t). */
  size_t size;
  /** The file. */
  const char *path;
  /** How many calls found no room in it and were only counted. */
  uint64_t dropped;
  /** Whether calls are being recorded: 1, or 0 after p2pshim_trace_stop(). */
  int recording;
} p2pshim_trace_t;

/**
 * Starts to record calls for `p2pshim report`, as P2PSHIM_TRACE does from the first call on.
 *
 * A process has one trace file. The first call of this function creates it; after p2pshim_trace_stop() recording continues in
 * the same file. It reads the options if there was no intercepted call yet. Calls in progress on other threads are not
 * recorded.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers.
 *
 * @param folder Where to create the file; NULL for the folder of P2PSHIM_TRACE, or for the file that exists. The folder is
 * created if only its last component is missing.
 * @return P2PSHIM_OK, also if calls are recorded already; P2PSHIM_NOT_FOUND if `folder` is NULL and P2PSHIM_TRACE is not
 * set; P2PSHIM_TOO_LATE if there is a file in another folder; P2PSHIM_SYSTEM_ERROR if the file cannot be created;
 * P2PSHIM_INACTIVE; P2PSHIM_INTERNAL_ERROR.
 */
p2pshim_status_t p2pshim_trace_start(const char *folder);

/**
 * Stops recording until p2pshim_trace_start(). Calls in progress are still completed.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers.
 *
 * @return P2PSHIM_OK, also if it was stopped before; P2PSHIM_NOT_FOUND if there is no trace; P2PSHIM_INACTIVE;
 * P2PSHIM_INTERNAL_ERROR.
 */
p2pshim_status_t p2pshim_trace_stop(void);

/**
 * Writes a mark to the trace, such as "epoch 3 begins": a text with the time and the calling thread. It is also logged, at
 * level info.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers.
 *
 * @param text The text, in UTF-8. It is cut off after 4096 bytes.
 * @return P2PSHIM_OK; P2PSHIM_INVALID_ARGUMENT if `text` is not UTF-8; P2PSHIM_NOT_FOUND if calls are not being
 * recorded; P2PSHIM_INTERNAL_ERROR.
 */
p2pshim_status_t p2pshim_trace_mark(const char *text);

/**
 * Describes the trace.
 *
 * Thread-safety: any thread; not in signal handlers.
 *
 * @param trace Where to write; its size is set.
 * @return P2PSHIM_OK; P2PSHIM_NOT_FOUND if there is none.
 */
p2pshim_status_t p2pshim_trace_get(p2pshim_trace_t *trace);

/* ---- Callbacks of the program, which run after each call ---- */

/** A call that has returned. The struct is valid until the callback returns, its strings as long as the library is loaded. */
typedef struct {
  /** sizeof(p2pshim_event_t) in the library. Fields beyond it do not exist. */
  size_t size;
  /** The function, such as "cudaMemcpyPeerAsync". */
  const char *function;
  /** The kind of library that the function belongs to. */
  p2pshim_layer_t layer;
  /** The thread that called, as the kernel numbers it. */
  int thread;
  /** How many intercepted calls enclose it: 1 for the driver's inside one of the runtime. */
  int depth;
  /** When the real function was called, in nanoseconds of CLOCK_MONOTONIC. */
  uint64_t start_ns;
  /** How long it took the host, in nanoseconds. */
  uint64_t duration_ns;
  /** The code that the call returned to the program: a cudaError_t or a CUresult. Until CUDA 10.0 the runtime had numbers of its own. */
  int result;
  /** The name of that code; empty if it has none. */
  const char *result_name;
  /** The device that bytes were copied from, or that accesses; -1 if that is not known, as of memory of another process, or there is none. */
  int src_device;
  /** The device that they were copied to, or whose memory is accessed; -1 if that is not known, as of memory of another process, or there is none. */
  int dst_device;
  /** How many bytes were copied, of a batch or a graph between devices; 0 for other functions. */
  uint64_t bytes;
  /** The address of the source; 0 for other functions. */
  uint64_t src;
  /** The address of the destination; 0 for other functions. */
  uint64_t dst;
  /** The handle of the stream; 0 for the default stream, and for functions without one. */
  uint64_t stream;
  /**
   * The path of a copy that succeeded; P2PSHIM_PATH_NONE for other calls, and for a batch or a graph that copies between several
   * pairs.
   */
  p2pshim_path_t path;
  /** Why the copy took that path, such as "no hardware path"; empty if there is nothing to say. */
  const char *reason;
  /**
   * The ids of the rules with a finding about the call, such as "P2P-enable-twice". Findings about a driver call inside a
   * runtime call are reported with the runtime call.
   */
  const char *const *findings;
  /** How many there are, at most 4. */
  size_t finding_count;
} p2pshim_event_t;

/**
 * A callback: gets the event, and the pointer that it was added with. It must return: it may not longjmp, throw, or end its
 * thread.
 */
typedef void (*p2pshim_callback_t)(const p2pshim_event_t *event, void *data);

/**
 * Adds a callback. It is called for each call of a traced function (docs/INTERCEPTED.md), after the call has returned.
 *
 * The thread that made the call runs the callback when the outermost call has returned: first for the calls inside it, in the
 * order in which they ended, then for the outermost call itself. The shim holds no lock meanwhile. The callback may call
 * anything, including CUDA and this interface; its own calls run no callbacks. It should return soon, because the program's
 * call waits for it. The callback must return: it may not longjmp, throw, or end its thread (pthread_exit, or a cancellation
 * that it does not hold back). While there is a callback, a call costs about two microseconds more. For a call that was in
 * progress when the callback was added, it may not be called.
 *
 * A callback may also be added before the first intercepted call. At most 16 can exist at a time.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers.
 *
 * @param callback The callback. Any thread may call it, until it is removed and as p2pshim_callback_remove() says.
 * @param data A pointer that it gets; may be NULL.
 * @param id Where to write the id for p2pshim_callback_remove(). Ids are not reused.
 * @return P2PSHIM_OK; P2PSHIM_FULL; P2PSHIM_INACTIVE.
 */
p2pshim_status_t p2pshim_callback_add(p2pshim_callback_t callback, void *data, uint64_t *id);

/**
 * Removes a callback.
 *
 * It does not wait: a thread that is about to run the callback may still do so after this function has returned, for a call
 * that returned from the real function earlier. All that the callback uses must therefore stay valid until every thread that calls
 * CUDA has begun another call or has ended. A callback that removes itself is not called again by its own thread.
 *
 * Thread-safety: any thread, also in a callback; not in signal handlers.
 *
 * @param id The id that p2pshim_callback_add() wrote.
 * @return P2PSHIM_OK; P2PSHIM_NOT_FOUND if there is no such callback, or it was removed before.
 */
p2pshim_status_t p2pshim_callback_remove(uint64_t id);

#ifdef __cplusplus
}
#endif

#endif /* P2PSHIM_H */
