//! Calls that change what copies and peer access depend on: one `match` on the row's effect before the real function
//! ([`Change::before`]), and one after it ([`Change::after`]). The work of each effect stands below them.

use std::ffi::c_void;

use super::arrival::Caller;
use super::rights::{before_grants, on_pool_create, on_pool_get_access, on_pool_set_access};
use super::{
    blocked, context, failures, graphs, hip, host, mode, nvml, read, readback, shared, staging, thread, timing, waits,
};
use crate::api::abi::{Code, Value};
use crate::api::{Function, Layer, State};
use crate::objects::streams::{self, Known};
use crate::objects::{OBJECTS, arrays, captures};
use crate::os;
use crate::policy::access::{Grants, How};
use crate::policy::waits::Stream;
use crate::policy::{ACCESS, Driver, Ended, HIP, STAGING, VALIDATE, WAITS};
use crate::real::driver::{self, AccessDesc, Location, PoolProps, RealDriver};

/// Makes a call that changes state. `found` is the real function, which `real` calls.
#[inline(always)]
pub(crate) fn changing(
    function: Function,
    state: State,
    (caller, found): (Caller, *const c_void),
    arguments: &[Value],
    real: impl Fn() -> Code,
) -> Code {
    if state == State::sets_device {
        return setting_device((function, caller), real());
    }
    if !mode::is_on() {
        return real();
    }
    let change = Change { function, caller, arguments, found };
    let may_block = state != State::clears_last_error;
    if may_block {
        blocked::begin(function, caller, arguments);
    }
    let ret = match change.before(state) {
        None => real(),
        Some(code) => code,
    };
    if may_block {
        blocked::end(function, caller);
    }
    if mode::is_still_on() {
        if ret != Code::SUCCESS && captures::may_be_under_way() {
            captures::note_failure(function, ret);
        }
        change.after(state, ret);
    }
    ret
}

/// A call to set the device has returned. It is often the first of a process, which loads the driver: nothing of ours begins before that, unless order is
/// checked.
#[inline(always)]
fn setting_device((function, caller): (Function, Caller), ret: Code) -> Code {
    if ret != Code::SUCCESS && mode::is_on() {
        if captures::may_be_under_way() {
            captures::note_failure(function, ret);
        }
        failures::note(function, caller, ret);
    }
    ret
}

/// A call that changes state.
#[derive(Clone, Copy)]
struct Change<'a> {
    function: Function,
    caller: Caller,
    arguments: &'a [Value],
    found: *const c_void,
}

impl Change<'_> {
    /// Acts before the call is made. If the call must not be made, the program gets the code.
    #[inline(always)]
    fn before(self, state: State) -> Option<Code> {
        match (state, self.arguments) {
            (State::begins_capture, &[Value::Stream(stream), ..]) => self.before_capture(stream),
            (State::frees_memory, &[Value::Address(start), Value::Stream(stream)])
                if self.function.layer() == Layer::Driver && STAGING.rings.is_used() =>
            {
                staging::before_free(start as u64, stream, self.function.per_thread());
            }
            (State::frees_memory, &[Value::Address(start)]) if self.function.layer() == Layer::Driver => {
                waits::before_free(start as u64);
            }
            (State::frees_memory, &[Value::UInt(start)]) => waits::before_free(start),
            (State::waits_for_context, &[Value::Address(context)])
                if self.function == Function::cuCtxSynchronize_v2 =>
            {
                waits::before_work_of(Some(context).filter(|&context| context != 0));
            }
            (State::waits_for_context, _) if self.function == Function::cuMipmappedArrayDestroy => {
                waits::before_array_free(0);
            }
            (State::waits_for_context | State::loads_module, _) => waits::before_work_of(None),
            // To set `CU_LIMIT_STACK_SIZE` and `CU_LIMIT_PERSISTING_L2_CACHE_SIZE` waits for all work of the context.
            (State::sets_limit, &[Value::Int(0 | 6), _]) => waits::before_work_of(None),
            (State::unloads_module, &[Value::Address(module)]) => waits::before_unload(module),
            (State::records_event_of_context, &[Value::Address(context), _]) => waits::before_record_of(context),
            (State::unmaps_memory, &[Value::Address(start), ref rest @ ..]) => {
                let bytes = if let [Value::UInt(bytes)] = *rest { bytes } else { 0 };
                if STAGING.rings.is_used() {
                    staging::before_unmap(start as u64, bytes);
                }
                if ACCESS.has_imported() {
                    mode::unseen(|| ACCESS.on_unmap(&RealDriver, start as u64, bytes));
                }
            }
            (State::destroys_stream, &[Value::Stream(stream)]) => on_stream_destroy(self.function, stream),
            (State::destroys_pool, &[Value::Address(pool)]) => mode::unseen(|| ACCESS.on_pool_destroy(pool)),
            (State::destroys_array, &[Value::Address(array)]) => {
                waits::before_array_free(array);
                mode::unseen(|| ACCESS.on_array_destroy(array));
            }
            (State::destroys_context, &[Value::Address(context)]) => before_context_ends(Some(context), None, true),
            (State::creates_context, &[.., Value::Ordinal(device)]) => before_context(self.function, device),
            (State::releases_primary_context, &[Value::Ordinal(device)]) => before_primary_context_release(device),
            (State::resets_primary_context, &[Value::Ordinal(device)]) => before_reset(device),
            (State::destroys_green_context, _) => before_context_ends(None, None, false),
            (State::resets_device, _) => hip::before_device_reset(self.found),
            (State::instantiates_graph, &[_, Value::Address(graph), ref rest @ ..]) => {
                graphs::before_instantiation(graph, rest)
            }
            (State::updates_graph, &[Value::Address(exec), Value::Address(graph), ..]) => {
                graphs::before_update(exec, graph)
            }
            (State::destroys_graph, &[Value::Address(exec)]) => graphs::on_exec_destroy(exec),
            (
                State::sets_mapped_access,
                &[Value::Address(address), Value::UInt(bytes), Value::Address(grants), Value::UInt(count)],
            ) if ACCESS.may_hide() => {
                let of = Grants::OfMapped { address: address as u64, bytes };
                return before_grants(of, grants as *const AccessDesc, count);
            }
            (State::opens_memory, &[_, Value::Address(handle), _]) => return shared::before_open(handle),
            (State::sets_pool_access, &[Value::Address(pool), Value::Address(grants), Value::UInt(count)]) => {
                return before_grants(Grants::OfPool(pool), grants as *const AccessDesc, count);
            }
            _ => {}
        }
        None
    }

    /// Acts once the call has returned.
    #[inline(always)]
    fn after(self, state: State, ret: Code) {
        let has_succeeded = ret == Code::SUCCESS;
        if !has_succeeded {
            match shares_memory(state) && !failures::loses_context(ret) {
                true => shared::note_failure(self.function, self.caller, self.arguments, ret),
                false => failures::note(self.function, self.caller, ret),
            }
        }
        match (state, self.arguments) {
            (State::frees_memory | State::unmaps_memory, &[start, ref rest @ ..])
                if self.function.layer() == Layer::Driver =>
            {
                on_free(start, state == State::unmaps_memory, ret);
                // Not those in a stream, of which there may be many.
                if rest.is_empty() {
                    readback::harvest();
                }
            }
            (State::frees_memory, _) => HIP.forget_all_memory(),
            (State::resets_device, _) => {
                hip::after_device_reset(self.found);
                HIP.forget_all_memory();
            }
            (State::sets_mapped_access, &[Value::Address(address), Value::UInt(bytes), ..]) => {
                mode::unseen(|| OBJECTS.past.note_access_set(address as u64, bytes, ret));
                on_mappings_changed();
            }
            _ if self.moves_memory(state) => self.on_move(ret),
            (State::clears_last_error, _) => thread::current().clear_pending_error(),
            (State::begins_capture, &[Value::Stream(stream), ..]) => self.after_capture_begun(stream, ret),
            (State::ends_capture, &[Value::Stream(stream), ..]) => {
                mode::unseen(|| captures::on_end(self.stream(stream), ret));
            }
            (State::destroys_stream, &[Value::Stream(stream)]) => self.after_stream_destroy(stream, ret),
            (State::destroys_array, &[Value::Address(array)]) if is_there_still(ret) => {
                mode::unseen(|| OBJECTS.arrays.unmark_destroyed(array));
            }
            (State::destroys_green_context, _) => mode::unseen(|| on_contexts_changed(None, None)),
            (State::creates_context, &[.., Value::Ordinal(device)])
                if !has_succeeded && self.function == Function::cuDevicePrimaryCtxRetain =>
            {
                OBJECTS.contexts.undo_retain(device);
            }
            (State::releases_primary_context, &[Value::Ordinal(device)]) => after_primary_context_release(device),
            (State::resets_primary_context, &[Value::Ordinal(device)]) => on_primary_context_reset(device),
            (State::sets_pool_access, &[Value::Address(pool), Value::Address(grants), Value::UInt(count)]) => {
                on_pool_set_access(pool, grants as *const AccessDesc, count, ret);
            }
            (State::destroys_pool, &[Value::Address(pool)]) => {
                mode::unseen(|| ACCESS.on_pool_destroy_returned(pool, has_succeeded));
            }
            (State::instantiates_graph, &[Value::Address(exec), ..]) => graphs::on_instantiation(exec, ret),
            (State::updates_graph, &[Value::Address(exec), Value::Address(graph), Value::Address(output), ..]) => {
                graphs::after_update(self.function, [exec, graph, output], has_succeeded);
            }
            _ if has_succeeded => self.after_success(state),
            _ => {}
        }
    }

    /// Acts if the call has succeeded, on what would not have changed else.
    #[inline(always)]
    fn after_success(self, state: State) {
        match (state, self.arguments) {
            (State::creates_memory, &[Value::Address(out), Value::UInt(bytes), Value::Address(properties), _]) => {
                shared::on_creation(out, bytes, properties);
            }
            (State::exports_memory, arguments) => shared::on_export(self.function, self.caller, arguments),
            (State::opens_memory, &[Value::Address(out), Value::Address(handle), _]) => {
                shared::on_open(How::Ipc, out, handle);
            }
            (State::imports_pointer, &[Value::Address(out), _, Value::Address(handle)]) => {
                shared::on_open(How::Pool, out, handle);
            }
            (State::waits_for_stream, &[Value::Stream(stream)]) => {
                host::note_wait(|| Some(self.stream(stream)));
            }
            (State::waits_for_context, &[]) => host::note_wait(|| None),
            (State::creates_stream | State::creates_green_stream, &[Value::Address(out), ref rest @ ..]) => {
                on_stream_create(out, rest, state == State::creates_stream);
            }
            (State::creates_array, &[Value::Address(out), Value::Address(shape)]) => {
                on_array_create(out, || read::array_2d(shape));
            }
            (State::creates_3d_array, &[Value::Address(out), Value::Address(shape)]) => {
                on_array_create(out, || read::array_3d(shape));
            }
            (State::creates_old_array, &[Value::Address(out), _]) => on_array_create(out, || None),
            (State::destroys_context, &[Value::Address(context)]) => on_context_destroy(context),
            (
                State::gets_nvml_status,
                &[Value::Address(one), Value::Address(other), Value::Int(index), Value::Address(status)],
            ) => nvml::on_status(self.found, [one, other], index, status as *mut i32),
            (State::gets_pool_access, &[Value::Address(flags), Value::Address(pool), Value::Address(location)]) => {
                on_pool_get_access(flags as *mut u32, pool, location as *const Location);
            }
            (State::creates_pool, &[Value::Address(out), Value::Address(properties)]) => {
                on_pool_create(out, Some(properties as *const PoolProps));
            }
            (State::imports_memory, &[Value::Address(out), ..]) => {
                let handle = || read::handle_at(out);
                mode::unseen(|| handle().into_iter().for_each(|handle| ACCESS.note_imported(&RealDriver, handle)));
            }
            (State::imports_pool, &[Value::Address(out), ..]) => on_pool_create(out, None),
            (State::sets_graph_node, &[Value::Address(exec), Value::Address(node), to, ..]) => {
                graphs::on_graph_node(exec, node, to, self.function);
            }
            (State::creates_context, &[.., Value::Ordinal(device)]) => self.on_context_create(device),
            (State::loads_module, &[Value::Address(out), ..]) => {
                mode::unseen(|| read::handle_at(out)).into_iter().for_each(waits::on_module_loaded);
            }
            _ => {}
        }
    }
}

// ---- Memory ----

/// Whether processes share memory by such a call, or may.
#[inline(always)]
fn shares_memory(state: State) -> bool {
    matches!(state, State::exports_memory | State::opens_memory | State::imports_memory | State::imports_pool)
        || matches!(state, State::imports_pointer | State::creates_memory | State::sets_pool_access)
}

impl Change<'_> {
    /// Whether addresses may mean other memory from now on. The variables of code go with it.
    fn moves_memory(self, state: State) -> bool {
        matches!(state, State::moves_memory | State::unloads_module | State::restores_process)
            || self.function == Function::cuLibraryUnload
    }

    #[cold]
    fn on_move(self, ret: Code) {
        let is_own = |process: i64| process == i64::from(std::process::id());
        match *self.arguments {
            // From a checkpoint, perhaps onto other devices. Another process's p2pshim does not know of that.
            [Value::Int(process), _] if ret == Code::SUCCESS && is_own(process) => {
                mode::unseen(|| ACCESS.on_process_restored(&RealDriver));
            }
            _ => ACCESS.forget_all_memory(),
        }
    }
}

/// Memory is gone, or was not there.
#[inline(always)]
fn on_free(start: Value, is_mapped: bool, ret: Code) {
    let start = match start {
        Value::UInt(start) => start,
        Value::Address(start) => start as u64,
        _ => 0,
    };
    if ret == Code::SUCCESS && ACCESS.has_opened() {
        mode::unseen(|| ACCESS.on_shared_memory_freed(&RealDriver, start));
    }
    if ret == Code::SUCCESS && VALIDATE.is_on() {
        let end = ACCESS.known(start).map_or(0, |(_, range)| range.end);
        OBJECTS.past.note_freed(start, end);
    }
    // Parts of several allocations may be unmapped.
    if is_mapped { on_mappings_changed() } else { ACCESS.forget_memory(start) }
}

/// Mapped memory is gone, or has other rights. If nothing can be looked up now, all memory is forgotten.
fn on_mappings_changed() {
    if !mode::unseen(|| ACCESS.forget_mappings()) {
        ACCESS.forget_all_memory();
    }
}

// ---- Captures ----

impl Change<'_> {
    /// A capture is about to begin. Nobody asks about a stream once it may be captured: that would end the capture.
    #[cold]
    fn before_capture(self, stream: usize) {
        mode::unseen(|| {
            // While it may still be asked, and only of a stream that is there: of no other does the driver return safely.
            let context = match VALIDATE.is_on() && OBJECTS.streams.there(stream).is_some() {
                true => captures::beside_none(|| RealDriver.stream_context(stream, self.function.per_thread())),
                false => None,
            };
            captures::announce();
            captures::let_askers_finish();
            thread::current().begins_capture.set(Some(context.unwrap_or(0)));
        });
    }

    #[cold]
    fn after_capture_begun(self, stream: usize, ret: Code) {
        // Unless our own code runs, which begins none.
        mode::unseen(|| {
            let begun = thread::current().begins_capture.take();
            let context = begun.filter(|&context| context != 0 && ret == Code::SUCCESS);
            let context = context.and_then(|context| Some((context, RealDriver.context_id(context)?)));
            let is_for_graphics =
                matches!(self.function, Function::cuStreamBeginCaptureToCig | Function::cuStreamBeginCaptureToCig_ptsz);
            captures::on_begun((self.stream(stream), thread::id(), is_for_graphics), ret, begun.is_some(), context);
        });
    }

    fn stream(self, handle: usize) -> streams::Stream {
        streams::Stream::new(handle, self.function.per_thread(), thread::id())
    }
}

// ---- Streams ----

/// A stream was created. The arguments behind it are its flags and priority; a green context stands before them.
#[cold]
fn on_stream_create(out: usize, rest: &[Value], is_of_current_context: bool) {
    /// `CU_STREAM_NON_BLOCKING`.
    const NON_BLOCKING: u64 = 1;
    let (&[Value::UInt(flags), ..] | &[_, Value::UInt(flags), ..]) = rest else { return };
    if !VALIDATE.is_on() {
        return;
    }
    mode::unseen(|| {
        let Some(stream) = read::handle_at(out) else { return };
        // A green context may be current elsewhere, and so must not be asked.
        let context = if is_of_current_context { RealDriver.current_context() } else { None };
        let device = context.and_then(|context| VALIDATE.device_of(&RealDriver, context));
        let (context, non_blocking) = (Known::context(context.unwrap_or(0)), flags & NON_BLOCKING != 0);
        let known = Known { context, non_blocking, thread: thread::current().tag(), ..Known::on(device) };
        OBJECTS.streams.note(stream, known);
    });
}

/// A stream is about to be destroyed. Not only when it is: by then another thread may have been given the handle anew.
#[inline(always)]
fn on_stream_destroy(function: Function, stream: usize) {
    if function.layer() == Layer::Driver && (VALIDATE.is_on() || STAGING.rings.is_used() || !WAITS.are_none()) {
        leave_stream(stream);
    }
}

#[inline(never)]
fn leave_stream(stream: usize) {
    mode::unseen(|| {
        if VALIDATE.is_on() && streams::is_created(stream) {
            OBJECTS.streams.mark_destroyed(stream);
            captures::let_askers_finish();
        }
        STAGING.rings.on_stream_destroy(stream);
        if streams::is_created(stream) {
            WAITS.on_stream_destroy(&RealDriver, Stream::Created(stream));
        }
    });
}

impl Change<'_> {
    #[cold]
    fn after_stream_destroy(self, stream: usize, ret: Code) {
        if self.function.layer() == Layer::Driver && is_there_still(ret) {
            mode::unseen(|| OBJECTS.streams.forget(stream));
        }
        if ret == Code::SUCCESS && captures::may_be_under_way() {
            mode::unseen(|| captures::on_stream_destroyed(self.stream(stream)));
        }
    }
}

/// Whether what was to be destroyed was not, and is there.
fn is_there_still(ret: Code) -> bool {
    /// `CUDA_ERROR_INVALID_HANDLE`: there is none (any more).
    const INVALID_HANDLE: Code = Code(400);
    ret != Code::SUCCESS && ret != INVALID_HANDLE
}

// ---- Arrays ----

/// An array was created, of which the shape may not be known.
#[cold]
fn on_array_create(out: usize, shape: impl FnOnce() -> Option<arrays::Shape>) {
    mode::unseen(|| {
        if let Some(array) = read::handle_at(out) {
            ACCESS.on_array_created(&RealDriver, array, shape());
        }
    });
}

// ---- Contexts ----

impl Change<'_> {
    /// A context on a device was created, or its primary context retained.
    fn on_context_create(self, device: i32) {
        if ACCESS.is_first_context(device) {
            mode::unseen(|| {
                context::note_first(self.function, self.caller, device);
                ACCESS.on_context_created(&RealDriver, device);
            });
        }
    }
}

/// A device is about to be reset.
#[cold]
fn before_reset(device: i32) {
    mode::unseen(|| OBJECTS.streams.on_device_reset(device));
    before_context_ends(None, Some(device), true);
}

/// A context may be about to end, and what belongs to it, perhaps with its memory.
#[cold]
fn before_context_ends(context: Option<usize>, primary_of: Option<i32>, with_memory: bool) {
    if with_memory {
        waits::before_context_ends();
        if !mode::unseen(|| ACCESS.on_context_ending(context, primary_of)) {
            ACCESS.forget_all_memory();
        }
    }
    let context = mode::unseen(|| {
        timing::on_contexts_ending();
        OBJECTS.on_context_ending(context, primary_of);
        let primary = || RealDriver.primary_context(primary_of?);
        let context = if STAGING.rings.is_used() || !WAITS.are_none() { context.or_else(primary) } else { None };
        OBJECTS.contexts.mark_ending(thread::id(), context);
        context
    });
    if with_memory && let Some(context) = context {
        mode::unseen(|| WAITS.on_context_ending(context));
    }
    staging::before_context_ends(context);
    readback::harvest();
}

#[cold]
fn on_context_destroy(context: usize) {
    mode::unseen(|| {
        OBJECTS.forget_context(Some(context), None);
        on_contexts_changed(None, Some(context));
    });
}

fn before_context(function: Function, device: i32) {
    if function == Function::cuDevicePrimaryCtxRetain {
        OBJECTS.contexts.begin_retain(device);
    }
}

/// Libraries retain and release around each copy (UCX): while others hold the context, that changes nothing.
fn before_primary_context_release(device: i32) {
    if OBJECTS.contexts.begin_release(device) {
        before_context_ends(None, Some(device), true);
    } else {
        OBJECTS.contexts.take_ending(thread::id());
    }
}

fn after_primary_context_release(device: i32) {
    // The release is over whatever comes of that. Within our own work signals are held back already.
    let end_release = || OBJECTS.contexts.end_release(device);
    if thread::current().is_busy() {
        return end_release();
    }
    let look = || {
        let may_have_ended = OBJECTS.contexts.is_ending(thread::id());
        let is_gone = !driver::is_primary_active(device);
        if is_gone && !may_have_ended {
            // Somebody unseen held it, and has let it go unseen.
            ACCESS.on_context_ending(None, Some(device));
            OBJECTS.on_context_ending(None, Some(device));
        }
        if is_gone {
            OBJECTS.contexts.forget_held(device);
        } else if may_have_ended && driver::is_primary_held(device) {
            OBJECTS.contexts.note_held(device);
        }
        if is_gone || may_have_ended {
            on_contexts_changed(is_gone.then_some(device), None);
        }
    };
    mode::unseen(|| os::finally(end_release, look));
}

#[cold]
fn on_primary_context_reset(device: i32) {
    OBJECTS.contexts.forget_held(device);
    mode::unseen(|| {
        let is_gone = !driver::is_primary_active(device);
        on_contexts_changed(is_gone.then_some(device), None);
    });
}

/// Contexts may have ended: the primary one of a device, or one by its handle, if it is known which.
fn on_contexts_changed(primary_of: Option<i32>, destroyed: Option<usize>) {
    // The primary context's handle, which the driver does not tell any more.
    let ending = OBJECTS.contexts.take_ending(thread::id()).flatten().filter(|_| primary_of.is_some());
    let ended = Ended::new(&RealDriver, primary_of, destroyed.or(ending));
    captures::on_contexts_ended(|context| ended.has(context));
    ACCESS.on_contexts_ended(&ended);
    STAGING.rings.on_contexts_ended(&RealDriver, (&|&context| ended.has(context), ended.is_any_known()));
    WAITS.on_contexts_ended(&RealDriver, &ended);
}
