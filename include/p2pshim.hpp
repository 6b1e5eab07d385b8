/*
 * p2pshim for C++11 and later: the parts of p2pshim.h that are easier to use with destructors, exceptions and standard types.
 * Header-only; everything else is in p2pshim.h.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Without exceptions (-fno-exceptions, or P2PSHIM_NO_EXCEPTIONS defined) nothing throws: use trace_scope::status() and
 * callback_scope::status(). A function that returns a value returns an empty one on failure.
 */

#ifndef P2PSHIM_HPP
#define P2PSHIM_HPP

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "p2pshim.h"

#if !defined(P2PSHIM_NO_EXCEPTIONS) && !defined(__cpp_exceptions) && !defined(__EXCEPTIONS)
#define P2PSHIM_NO_EXCEPTIONS 1
#endif

#ifndef P2PSHIM_NO_EXCEPTIONS
#include <stdexcept>
#endif

/** The parts of p2pshim.h that are easier to use with destructors, exceptions and standard types. */
namespace p2pshim {

#ifndef P2PSHIM_NO_EXCEPTIONS
/** A status other than P2PSHIM_OK that a function returned. */
class error : public std::runtime_error {
public:
    /** An error with the text of p2pshim_status_text().
     * @param status What a function returned. */
    explicit error(p2pshim_status_t status)
        : std::runtime_error(std::string(p2pshim_status_name(status)) + ": " + p2pshim_status_text(status)), status_(status)
    {
    }

    /** The status.
     * @return What the function returned. */
    p2pshim_status_t status() const noexcept { return status_; }

private:
    p2pshim_status_t status_;
};
#endif

/** Throws p2pshim::error unless the status is P2PSHIM_OK.
 * @param status What a function returned.
 * @return The status. */
inline p2pshim_status_t check(p2pshim_status_t status)
{
#ifndef P2PSHIM_NO_EXCEPTIONS
    if (status != P2PSHIM_OK)
        throw error(status);
#endif
    return status;
}

/** What is known of a device's access to the memory of another: p2pshim_pair_state_get().
 * @param device The ordinal of the device that accesses.
 * @param peer The ordinal of the device whose memory it is.
 * @return The state. */
inline p2pshim_pair_state_t pair_state(int device, int peer)
{
    p2pshim_pair_state_t state = P2PSHIM_INIT(p2pshim_pair_state_t);
    check(p2pshim_pair_state_get(device, peer, &state));
    return state;
}

/** Verifies the path between two devices and enables peer access now: p2pshim_pair_prepare().
 * @param device The ordinal of one device.
 * @param peer The ordinal of the other.
 * @return Whether copies between the two are direct from now on. */
inline bool prepare(int device, int peer)
{
    const p2pshim_status_t status = p2pshim_pair_prepare(device, peer);
    return status != P2PSHIM_STAGED && check(status) == P2PSHIM_OK;
}

/** What has been copied from a device to another: p2pshim_pair_get().
 * @param src_device The ordinal of the device that bytes came from.
 * @param dst_device The ordinal of the device that they went to.
 * @return The counters. */
inline p2pshim_pair_t copies(int src_device, int dst_device)
{
    p2pshim_pair_t counted = P2PSHIM_INIT(p2pshim_pair_t);
    check(p2pshim_pair_get(src_device, dst_device, &counted));
    return counted;
}

/** The shim in this process: p2pshim_state_get().
 * @return The state. */
inline p2pshim_state_t state()
{
    p2pshim_state_t now = P2PSHIM_INIT(p2pshim_state_t);
    check(p2pshim_state_get(&now));
    return now;
}

/** The runtimes and drivers that are loaded: p2pshim_library_get().
 * @return All of them. */
inline std::vector<p2pshim_library_t> libraries()
{
    std::vector<p2pshim_library_t> all;
    p2pshim_library_t library = P2PSHIM_INIT(p2pshim_library_t);
    // One that was counted may be gone by the time that it is asked about.
    for (size_t index = 0; p2pshim_library_get(index, &library) == P2PSHIM_OK; index++)
        all.push_back(library);
    return all;
}

/** The value of an option: p2pshim_option_value().
 * @param name The option's name.
 * @return The value. */
inline std::string option(const std::string &name)
{
    size_t length = 0;
    p2pshim_status_t status = p2pshim_option_value(name.c_str(), nullptr, 0, &length);
    if (status != P2PSHIM_TOO_SMALL) {
        check(status);
        return std::string();
    }
    std::string value(length + 1, '\0');
    // Another thread may make it longer meanwhile: then it is cut off.
    status = p2pshim_option_value(name.c_str(), &value[0], value.size(), &length);
    if (status != P2PSHIM_TOO_SMALL)
        check(status);
    value.resize(value.find('\0'));
    return value;
}

/** Sets an option: p2pshim_option_set().
 * @param name The option's name.
 * @param value The value; "" for the default.
 * @return What that function returned. */
inline p2pshim_status_t set_option(const std::string &name, const std::string &value)
{
    return check(p2pshim_option_set(name.c_str(), value.c_str()));
}

/** Records calls during its lifetime. If scopes are nested, or exist on several threads, recording stops when the first of them
 * ends. */
class trace_scope {
public:
    /** Records to the folder of P2PSHIM_TRACE, or to the file that exists. */
    trace_scope() : status_(check(p2pshim_trace_start(nullptr))) {}
    /** Records to a file in this folder. If calls are recorded in another folder, as under `p2pshim run`, they stay there, and so do marks: then
     * nothing is thrown, and status() is P2PSHIM_TOO_LATE.
     * @param folder Where to create the file. */
    explicit trace_scope(const std::string &folder) : status_(p2pshim_trace_start(folder.c_str()))
    {
        if (status_ != P2PSHIM_TOO_LATE)
            check(status_);
    }

    ~trace_scope()
    {
        if (status_ == P2PSHIM_OK)
            p2pshim_trace_stop();
    }

    trace_scope(const trace_scope &) = delete;
    trace_scope &operator=(const trace_scope &) = delete;

    /** Writes a mark: p2pshim_trace_mark(). It never throws: a lost mark is no reason to end a program.
     * @param text The text.
     * @return What that function returned. */
    p2pshim_status_t mark(const std::string &text) noexcept { return p2pshim_trace_mark(text.c_str()); }

    /** Whether calls are recorded.
     * @return What p2pshim_trace_start() returned. */
    p2pshim_status_t status() const noexcept { return status_; }

private:
    p2pshim_status_t status_;
};

/** A callback that is registered during the lifetime of this object: p2pshim_callback_add() says when and where it is called. The
 * function must return: it may not longjmp, throw, or end its thread; an exception that leaves it ends the process
 * (std::terminate). A thread may be about to call it when the object is destroyed, so the function is kept until the process
 * ends, but what it refers to may be gone. */
class callback_scope {
public:
    /** The callback; any thread may call it. */
    typedef std::function<void(const p2pshim_event_t &)> function;

    /** Adds the callback.
     * @param callback What is called with each event. */
    explicit callback_scope(function callback) : id_(0)
    {
        function *kept = new function(std::move(callback));
        status_ = p2pshim_callback_add(call_back, kept, &id_);
        if (status_ != P2PSHIM_OK)
            delete kept;
        check(status_);
    }

    ~callback_scope()
    {
        if (status_ == P2PSHIM_OK)
            p2pshim_callback_remove(id_);
    }

    callback_scope(const callback_scope &) = delete;
    callback_scope &operator=(const callback_scope &) = delete;

    /** Whether the callback was added.
     * @return What p2pshim_callback_add() returned. */
    p2pshim_status_t status() const noexcept { return status_; }

private:
    static void call_back(const p2pshim_event_t *event, void *kept) noexcept { (*static_cast<function *>(kept))(*event); }

    uint64_t id_;
    p2pshim_status_t status_;
};

} // namespace p2pshim

#endif /* P2PSHIM_HPP */
