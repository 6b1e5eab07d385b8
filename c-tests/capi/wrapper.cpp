// The C++ wrapper: scopes, exceptions, listeners. On simulated GPUs or without a driver.
#include <p2pshim.hpp>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define REQUIRE(cond)                                                                                                  \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #cond);                                   \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

template <typename F> static p2pshim_status_t thrown(F call)
{
    try {
        call();
    } catch (const p2pshim::error &error) {
        REQUIRE(std::strstr(error.what(), p2pshim_status_name(error.status())));
        return error.status();
    }
    return P2PSHIM_OK;
}

// Of no memory: the driver refuses it, if there is one.
__attribute__((noinline)) static int refused_copy(int depth)
{
    volatile int status = depth > 0 ? refused_copy(depth - 1) : p2pshim_memcpy_peer(nullptr, 0, nullptr, 0, 16);
    return status;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    REQUIRE(p2pshim::state().activity == P2PSHIM_ACTIVITY_NOT_STARTED);
    p2pshim::set_option("P2PSHIM_VALIDATE", "off");
    REQUIRE(p2pshim::option("P2PSHIM_VALIDATE") == "off" && p2pshim::option("P2PSHIM_DENY").empty());
    REQUIRE(thrown([] { p2pshim::set_option("P2PSHIM_NO", "x"); }) == P2PSHIM_UNKNOWN_NAME);
    REQUIRE(thrown([] { p2pshim::option("P2PSHIM_NO"); }) == P2PSHIM_UNKNOWN_NAME);
    REQUIRE(thrown([] { p2pshim::pair_state(-1, 0); }) == P2PSHIM_OUT_OF_RANGE);
    REQUIRE(thrown([] { p2pshim::trace_scope scope; }) == P2PSHIM_NOT_FOUND);
    REQUIRE(p2pshim::pair_state(0, 1).enabled_by == 0 && p2pshim::copies(0, 1).direct_copies == 0);
    REQUIRE(p2pshim::libraries().size() == p2pshim_library_count());

    const bool has_driver = dlopen("libcuda.so.1", RTLD_NOW) != nullptr;
    int heard = 0;
    {
        p2pshim::trace_scope scope{std::string(argv[1])};
        REQUIRE(scope.status() == P2PSHIM_OK && p2pshim::state().recording == 1);
        REQUIRE(scope.mark("inside") == P2PSHIM_OK);
        p2pshim::listener listener([&heard](const p2pshim_event_t &event) { heard += event.bytes == 16; });
        REQUIRE(refused_copy(0) == (has_driver ? P2PSHIM_DRIVER_ERROR : P2PSHIM_NO_DRIVER));
        REQUIRE(heard == has_driver);
    }
    REQUIRE(p2pshim::state().recording == 0);

    // A listener that throws, out of a call that comes from deeper each time.
    int thrown_at = 0, caught = 0;
    p2pshim::listener thrower([&thrown_at](const p2pshim_event_t &) { throw ++thrown_at; });
    for (int depth = 0; depth < 4; depth++) {
        try {
            refused_copy(depth);
        } catch (int at) {
            caught += at == depth + 1;
        }
    }
    REQUIRE(caught == (has_driver ? 4 : 0));
    std::puts("done");
    return 0;
}
