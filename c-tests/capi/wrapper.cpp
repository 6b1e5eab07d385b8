// The C++ wrapper: scopes, exceptions, callbacks. On simulated GPUs or without a driver.
#include <p2pshim.hpp>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

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
static bool is_refused(void *driver)
{
    using copy_t = int (*)(unsigned long long, void *, unsigned long long, void *, size_t);
    const auto copy = driver ? reinterpret_cast<copy_t>(dlsym(driver, "cuMemcpyPeer")) : nullptr;
    return copy && copy(0, nullptr, 0, nullptr, 16) != 0;
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
    REQUIRE(thrown([] { p2pshim::prepare(1, 1); }) == P2PSHIM_OUT_OF_RANGE);
    REQUIRE(thrown([] { p2pshim::trace_scope scope; }) == P2PSHIM_NOT_FOUND);
    REQUIRE(p2pshim::pair_state(0, 1).enabled_by == 0 && p2pshim::copies(0, 1).direct_copies == 0);
    REQUIRE(p2pshim::libraries().size() == p2pshim_library_count());

    void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
    const bool has_driver = driver != nullptr;
    int heard = 0;
    {
        p2pshim::trace_scope scope{std::string(argv[1])};
        REQUIRE(scope.status() == P2PSHIM_OK && p2pshim::state().recording == 1);
        REQUIRE(scope.mark("inside") == P2PSHIM_OK);
        {
            // As under `p2pshim run`: the trace lies elsewhere, and goes on.
            p2pshim::trace_scope other{std::string(argv[1]) + "/other"};
            REQUIRE(other.status() == P2PSHIM_TOO_LATE && other.mark("there") == P2PSHIM_OK);
        }
        REQUIRE(p2pshim::state().recording == 1);
        p2pshim::callback_scope callback([&heard](const p2pshim_event_t &event) { heard += event.bytes == 16; });
        REQUIRE(is_refused(driver) == has_driver);
        REQUIRE(heard == has_driver);
    }
    REQUIRE(p2pshim::state().recording == 0);

    // An exception that leaves a callback ends the process there, and is not the caller's.
    std::set_terminate([] {
        std::puts("done");
        std::fflush(stdout);
        std::_Exit(0);
    });
    p2pshim::callback_scope thrower([](const p2pshim_event_t &) { throw 1; });
    try {
        is_refused(driver);
    } catch (int) {
        REQUIRE(!"caught");
    }
    REQUIRE(!has_driver);
    std::puts("done");
    return 0;
}
