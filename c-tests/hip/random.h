/*
 * What the random programs of HIP share: what each thread's last error should be in the release that they are built for, the device that is
 * current, and peer access, of which the program knows what each call has to answer.
 */
#ifndef P2PSHIM_C_TESTS_HIP_RANDOM_H
#define P2PSHIM_C_TESTS_HIP_RANDOM_H

#include "hip.h"

#include "lib/random.h"

enum { DEVICES = 4 };

static bool path[DEVICES][DEVICES];
static bool is_enabled[DEVICES][DEVICES]; /* a thread writes the row of its own device only */
static _Thread_local int current;

/* Takes an answer into account, against the one that is right; some refusals do not become the last error. */
static inline bool answered(int code, int right, bool recorded)
{
    int last = hipPeekAtLastError();
    if (recorded && (HIP_MAJOR < 7 || (code != hipSuccess && code != hipErrorNotReady)))
        mine->last = code;
    fold((uint64_t)code << 32 | (unsigned)last);
    note(" = %d, last %d", code, last);
    if (code != right)
        is_wrong("code");
    if (last != mine->last) {
        mine->last_wrong = true;
        note(" LAST, should be %d", mine->last);
        mine->last = last;
    }
    return code == hipSuccess;
}

/* After calls that all succeeded and are not part of what is tested. */
static inline void settled(void)
{
    if (HIP_MAJOR < 7)
        mine->last = hipSuccess;
}

static inline void forget_last_error(void)
{
    (void)hipGetLastError();
    mine->last = hipSuccess;
}

static inline void call_last_error(void)
{
    int last = mine->last;
    note("hipGetLastError");
    int code = hipGetLastError();
    mine->last = hipSuccess;
    answered(code, last, false);
}

/* ---- devices ---- */

static inline bool is_device(int ordinal)
{
    return ordinal >= 0 && ordinal < DEVICES;
}

/* Not part of what is tested. */
static inline void move_to(int device)
{
    CHECK(hipSetDevice(device));
    current = device;
    settled();
}

static inline void settle(void)
{
    for (int device = 0; device < DEVICES; device++) {
        CHECK(hipSetDevice(device));
        CHECK(hipDeviceSynchronize());
    }
    move_to(current);
}

/* What memory holds, against what it should. */
static inline void inspect(const void *at, const void *expected, size_t size)
{
    static _Thread_local unsigned char bytes[1 << 19];
    REQUIRE(size <= sizeof bytes);
    CHECK(hipMemcpy(bytes, at, size, hipMemcpyDefault));
    settled();
    fold_bytes(bytes, size < 5000 ? size : 5000);
    if (memcmp(bytes, expected, size) != 0)
        is_wrong("bytes");
}

/* ---- peer access ---- */

static inline int right_for_peer(int peer)
{
    return is_device(peer) && path[current][peer] ? hipSuccess : hipErrorInvalidDevice;
}

/* With other threads about, from this one's own device only. */
static inline void move_home(void)
{
    if (!mine->is_alone)
        move_to(mine->number);
}

static inline void enable(int peer, unsigned flags)
{
    int right = right_for_peer(peer);
    if (flags)
        right = hipErrorInvalidValue;
    else if (right == hipSuccess && is_enabled[current][peer])
        right = hipErrorPeerAccessAlreadyEnabled;
    note("hipDeviceEnablePeerAccess(%d, %u) from %d", peer, flags, current);
    if (answered(hipDeviceEnablePeerAccess(peer, flags), right, true) && right == hipSuccess)
        is_enabled[current][peer] = true;
}

static inline void disable(int peer)
{
    int right = right_for_peer(peer);
    if (right == hipSuccess && !is_enabled[current][peer])
        right = hipErrorPeerAccessNotEnabled;
    note("hipDeviceDisablePeerAccess(%d) from %d", peer, current);
    if (answered(hipDeviceDisablePeerAccess(peer), right, true) && right == hipSuccess)
        is_enabled[current][peer] = false;
}

static inline void check_output(int out, int right)
{
    fold((unsigned)out);
    note(" -> %d", out);
    if (out != right)
        is_wrong("output");
}

static inline void ask(int from, int to, bool null)
{
    int out = -7, right = from == to || (is_device(from) && is_device(to)) ? hipSuccess : hipErrorInvalidDevice;
    if (null)
        right = hipErrorInvalidValue;
    note("hipDeviceCanAccessPeer(%s, %d, %d)", null ? "NULL" : "&out", from, to);
    answered(hipDeviceCanAccessPeer(null ? NULL : &out, from, to), right, true);
    check_output(out, right != hipSuccess ? -7 : from != to && path[from][to]);
}

static inline void disable_all(void)
{
    for (int from = 0; from < DEVICES; from++) {
        CHECK(hipSetDevice(from));
        for (int to = 0; to < DEVICES; to++)
            if (is_enabled[from][to])
                CHECK(hipDeviceDisablePeerAccess(to));
    }
    memset(is_enabled, 0, sizeof is_enabled);
}

/* Sequences of a program, one in `one_in` of which has threads. */
static inline int take_hip_sequences(int argc, char **argv, unsigned one_in, void (*take)(void))
{
    const struct program program = {.one_in = one_in, .take = take, .finish = disable_all};
    int devices = 0;
    CHECK(hipGetDeviceCount(&devices));
    REQUIRE(devices == DEVICES);
    for (int from = 0; from < DEVICES; from++)
        for (int to = 0, can; to < DEVICES; to++) {
            CHECK(hipDeviceCanAccessPeer(&can, from, to));
            path[from][to] = can;
        }
    return take_sequences(argc, argv, &program);
}

#endif
