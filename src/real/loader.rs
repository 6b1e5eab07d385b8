//! The dynamic linker's knowledge: which objects are loaded and what they define.
//!
//! None of this is called with a lock of ours held, since all of it may wait for the linker's own,
//! and a library's constructor may call us while it is held.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use crate::machine::FIRST_GLIBC;

/// The type of `dlsym`.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The C library's `dlsym`. `dlvsym`, which we do not export, finds it past ours.
fn real_dlsym() -> Option<Dlsym> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    kept(&FOUND, || {
        [c"GLIBC_2.34", FIRST_GLIBC]
            .iter()
            // SAFETY: all arguments are C strings or the linker's own pseudo-handle.
            .map(|version| unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) })
            .find(|pointer| !pointer.is_null())
    })
}

/// Whether another library behind us wraps `dlsym`.
pub(crate) fn another_wraps_dlsym() -> bool {
    let address = |dlsym: Option<Dlsym>| dlsym.map(|dlsym| dlsym as *const c_void);
    address(next_dlsym()) != address(real_dlsym())
}

/// The `dlsym` that the program would call without us: that of another library which wraps it, or the C library's.
pub(crate) fn next_dlsym() -> Option<Dlsym> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    kept(&FOUND, || {
        Wanted { name: c"dlsym", version: None }.next_global().or(real_dlsym().map(|real| real as *mut c_void))
    })
}

fn kept(place: &AtomicPtr<c_void>, find: impl FnOnce() -> Option<*mut c_void>) -> Option<Dlsym> {
    let mut found = place.load(Acquire);
    if found.is_null() {
        found = find()?;
        place.store(found, Release);
    }
    // SAFETY: both places hold what was looked up as `dlsym`.
    Some(unsafe { std::mem::transmute::<*mut c_void, Dlsym>(found) })
}

/// A definition to look for: a name and, for the versioned symbols of a runtime, its version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) name: &'static CStr,
    /// The symbol version it must have, if any.
    pub(crate) version: Option<&'static CStr>,
}

impl Wanted {
    /// Looks it up through a handle or pseudo-handle; our own exports do not count.
    pub(crate) fn through(self, handle: *mut c_void) -> Option<*mut c_void> {
        self.bound_through(handle).filter(|&found| !is_own(found))
    }

    /// The definition that the program gets for its handle: by the `dlsym` that it would call without us. Our export stands for the
    /// definition behind us: the handle is the main program's, or a library that wraps `dlsym` hands out its own
    /// function of that name, and its reference is bound to us. Or such a library looks for the name in the whole process before it looks
    /// in the handle (HAMi-core): if nothing is behind us, the handle's is what it finds without us.
    pub(crate) fn asked_for(self, handle: *mut c_void) -> Option<*mut c_void> {
        // SAFETY: the program passed the handle to dlsym, and the name is a C string.
        let found = unsafe { next_dlsym()?(handle, self.name.as_ptr()) };
        match is_own(found) {
            // The look-up that fails last is the one that dlerror is about.
            true => self.next_global().or_else(|| self.through(handle)).or_else(|| self.next_global()),
            false => (!found.is_null()).then_some(found),
        }
    }

    /// Whether a look-up through the handle meets our export first.
    pub(crate) fn is_shadowed_in(self, handle: *mut c_void) -> bool {
        self.bound_through(handle).is_some_and(|found| is_own(found))
    }

    /// The definition that a reference would be bound to in the handle's scope.
    fn bound_through(self, handle: *mut c_void) -> Option<*mut c_void> {
        // SAFETY: the handle is open or a pseudo-handle, the name is a C string.
        let first = unsafe { real_dlsym()?(handle, self.name.as_ptr()) };
        let found = match self.version {
            // A reference with a version is also bound to a definition in an object that has no versions (a wrapper
            // library); dlvsym passes over those.
            Some(version) if first.is_null() || defines_versions(first) => {
                // SAFETY: as above.
                unsafe { libc::dlvsym(handle, self.name.as_ptr(), version.as_ptr()) }
            }
            _ => first,
        };
        (!found.is_null()).then_some(found)
    }

    /// The definition that follows ours in the global scope, which every object of the process
    /// would be bound to without us.
    pub(crate) fn next_global(self) -> Option<*mut c_void> {
        self.through(libc::RTLD_NEXT)
    }

    /// The definition in the scope of a caller of our export. A library in front of us whose own definition is also in
    /// front of ours has our export from a look-up of the next one: its own is what it does not want.
    pub(crate) fn in_scope_of_caller(self, caller: *const c_void) -> Option<*mut c_void> {
        let wraps = |own| {
            are_together(own, caller) && objects_between(caller).is_some() && self.through(libc::RTLD_DEFAULT).is_some()
        };
        self.in_scope_of(caller).filter(|&own| !wraps(own))
    }

    /// The definition in the scope of the object that holds `address`: itself and what it depends on.
    pub(crate) fn in_scope_of(self, address: *const c_void) -> Option<*mut c_void> {
        let handle = Object::holding(address)?.handle()?;
        self.through(handle.0)
    }

    /// The definition in any object that is loaded, in the order of loading; for callers whose own
    /// scope does not tell (a plugin whose host opened the runtime for it). Objects in front of us come last, since
    /// their definitions may lead back to us; the caller's own does not count.
    pub(crate) fn anywhere(self, caller: *const c_void) -> Option<*mut c_void> {
        let (own, holder) = (own_image().start, Object::holding(caller).map(|object| object.base));
        let objects = loaded_objects();
        let place = objects.iter().position(|object| object.base == own).unwrap_or_default();
        let (before, after) = objects.split_at(place);
        after.iter().chain(before).filter(|object| Some(object.base) != holder).find_map(|object| {
            let handle = object.handle()?;
            let found = self.through(handle.0)?;
            // The handle also searches what the object depends on; that has its own turn.
            (Object::holding(found)?.base == object.base).then_some(found)
        })
    }
}

/// A reference to a loaded object, given back on drop.
pub(crate) struct Handle(*mut c_void);

impl Handle {
    /// The library of that name or path, if it is loaded; nothing is ever loaded here.
    pub(crate) fn to_loaded(path: &CStr) -> Option<Self> {
        // SAFETY: `path` is a C string; RTLD_NOLOAD runs no constructor.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then(|| Self(handle))
    }

    /// The object's definition of `name`, ours left out.
    pub(crate) fn symbol(&self, name: &'static CStr) -> Option<*mut c_void> {
        Wanted { name, version: None }.through(self.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle came from dlopen and is closed once.
        unsafe { libc::dlclose(self.0) };
    }
}

/// A loaded object, as the dynamic linker names it.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// Its path; for the main program what it was started as.
    pub(crate) path: CString,
    pub(crate) base: usize,
}

impl Object {
    pub(crate) fn holding(address: *const c_void) -> Option<Self> {
        let (object, _) = describe(address)?;
        Some(object)
    }

    /// A handle to it; none for the main program, which has no path in the linker's list (what dladdr gives for it is
    /// what it was started as, and may be any file).
    pub(crate) fn handle(&self) -> Option<Handle> {
        if self.is_main() { None } else { Handle::to_loaded(&self.path) }
    }

    fn is_main(&self) -> bool {
        static MAIN: AtomicUsize = AtomicUsize::new(0);
        let mut main = MAIN.load(Relaxed);
        if main == 0 {
            main = loaded_objects().first().map(|object| object.base).unwrap_or_default();
            MAIN.store(main, Relaxed);
        }
        self.base == main
    }

    /// Whether it defines `name` itself.
    pub(crate) fn defines(&self, name: &'static CStr) -> bool {
        let Some(handle) = self.handle() else { return false };
        let Some(found) = handle.symbol(name) else { return false };
        Self::holding(found).is_some_and(|holder| holder.base == self.base)
    }

    pub(crate) fn file_name(&self) -> &[u8] {
        self.path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }
}

/// An exported symbol of an object.
pub(crate) struct Symbol {
    pub(crate) name: CString,
    /// Where it begins.
    pub(crate) address: *const c_void,
}

/// The object that `address` lies in, and the exported symbol at or before it, if any.
pub(crate) fn describe(address: *const c_void) -> Option<(Object, Option<Symbol>)> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr accepts any address and fills `info` when it returns non-zero.
    let info = unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr's strings live as long as the object that holds `address`, which is executing
    // or was just looked up.
    let text = |pointer: *const c_char| unsafe { CStr::from_ptr(pointer) }.to_owned();
    let symbol = (!info.dli_sname.is_null()).then(|| Symbol { name: text(info.dli_sname), address: info.dli_saddr });
    Some((Object { path: text(info.dli_fname), base: info.dli_fbase as usize }, symbol))
}

/// All loaded objects, in the order of loading. The main program's path is empty.
pub(crate) fn loaded_objects() -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    // SAFETY: the callback gets the vector that outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(push_object), (&raw mut objects).cast()) };
    objects
}

/// # Safety
/// `info` is the linker's own, `objects` points to a `Vec<Object>` nobody else uses.
unsafe extern "C" fn push_object(info: *mut libc::dl_phdr_info, _: usize, objects: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Vec<Object>>()) };
    let path = match info.dlpi_name.is_null() {
        true => CString::default(),
        // SAFETY: the linker's names are C strings.
        false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned(),
    };
    objects.push(Object { path, base: image_base(info) });
    0
}

/// Whether the object that holds `address` gives its symbols versions.
fn defines_versions(address: *const c_void) -> bool {
    const DT_VERDEF: usize = 0x6fff_fffc;
    let Some(handle) = Object::holding(address).and_then(|object| object.handle()) else {
        return false;
    };
    let mut map: *const LinkMap = ptr::null();
    // SAFETY: the handle is open, and the request writes one pointer.
    if unsafe { libc::dlinfo(handle.0, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } != 0 || map.is_null() {
        return false;
    }
    // SAFETY: the linker's own description of an object that the handle keeps loaded; its dynamic section ends with a
    // null tag.
    unsafe {
        let mut entry = (*map).dynamic;
        while !entry.is_null() && (*entry).tag != 0 {
            if (*entry).tag == DT_VERDEF {
                return true;
            }
            entry = entry.add(1);
        }
    }
    false
}

/// The public beginning of the linker's `struct link_map`.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
}

/// `Elf64_Dyn`.
#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// Where the first page of an object lies, which is how dladdr names it. (`dlpi_addr` is what has to
/// be added to its addresses: 0 for a program that is not position-independent.)
fn image_base(info: &libc::dl_phdr_info) -> usize {
    // SAFETY: the linker says how many headers there are.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let first =
        headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(|header| header.p_vaddr as usize).min();
    const PAGE: usize = 4096;
    (info.dlpi_addr as usize).wrapping_add(first.unwrap_or_default() & !(PAGE - 1))
}

/// Where the object that holds `address` lies, from its first page to its last byte.
pub(crate) fn image_of(address: *const c_void) -> Option<Range<usize>> {
    let mut found = (address as usize, None);
    // SAFETY: the callback gets the pair that outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(find_image), (&raw mut found).cast()) };
    found.1
}

/// # Safety
/// `info` is the linker's own, `wanted` points to an address, and a place for what is found, that nobody else uses.
unsafe extern "C" fn find_image(info: *mut libc::dl_phdr_info, _: usize, wanted: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let (info, wanted) = unsafe { (&*info, &mut *wanted.cast::<(usize, Option<Range<usize>>)>()) };
    // SAFETY: the linker says how many headers there are.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let end = loaded.map(|header| (header.p_vaddr as usize).wrapping_add(header.p_memsz as usize)).max();
    let image = image_base(info)..(info.dlpi_addr as usize).wrapping_add(end.unwrap_or_default());
    if image.contains(&wanted.0) {
        wanted.1 = Some(image);
    }
    c_int::from(wanted.1.is_some())
}

/// The objects from the one that holds `address` to this library, both left out, in the order of loading; none if it
/// does not come before us.
pub(crate) fn objects_between(address: *const c_void) -> Option<Vec<Object>> {
    let caller = Object::holding(address)?;
    let own = own_image().start;
    let mut before_us: Vec<Object> = loaded_objects().into_iter().take_while(|object| object.base != own).collect();
    let position = before_us.iter().position(|object| object.base == caller.base)?;
    Some(before_us.split_off(position + 1))
}

/// Whether the object that holds `definition` was loaded after the one that holds `caller`.
pub(crate) fn is_later(definition: *const c_void, caller: *const c_void) -> bool {
    let objects = loaded_objects();
    let position = |address| {
        let holder = Object::holding(address)?;
        objects.iter().position(|object| object.base == holder.base)
    };
    position(definition) > position(caller) && position(caller) > Some(0)
}

/// Whether the same object holds both.
pub(crate) fn are_together(one: *const c_void, other: *const c_void) -> bool {
    let base = |address| Object::holding(address).map(|object| object.base);
    base(one) == base(other)
}

/// Whether `address` is that of a function, and not of a variable that has a function's name.
pub(crate) fn is_function(address: *const c_void) -> bool {
    unsafe extern "C" {
        fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, extra: *mut *const c_void, flags: c_int) -> c_int;
    }
    const RTLD_DL_SYMENT: c_int = 1;
    const STT_OBJECT: u8 = 1;
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    let mut symbol: *const c_void = ptr::null();
    // SAFETY: dladdr1 accepts any address, and fills both when it returns non-zero.
    if unsafe { dladdr1(address, info.as_mut_ptr(), &mut symbol, RTLD_DL_SYMENT) } == 0 || symbol.is_null() {
        return true;
    }
    // SAFETY: the linker's own symbol table entry of an object that is loaded.
    let kind = unsafe { &*symbol.cast::<libc::Elf64_Sym>() }.st_info & 0xf;
    kind != STT_OBJECT
}

/// Whether what the program is linked with meets our definition first. Asked through the program's own handle: our scope may
/// have us where the program's has not.
pub(crate) fn is_first_in_the_program(name: &'static CStr) -> bool {
    // SAFETY: NULL stands for the program, which is loaded.
    let program = Handle(unsafe { libc::dlopen(ptr::null(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) });
    !program.0.is_null() && Wanted { name, version: None }.is_shadowed_in(program.0)
}

/// Keeps the object that holds `address` loaded for ever: its functions are in our slots. False if the linker does not
/// find it again (it lives in a namespace of its own, say).
pub(crate) fn pin(address: *const c_void) -> bool {
    let Some(object) = Object::holding(address) else { return false };
    if object.is_main() {
        return true;
    }
    let mode = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the path is a C string; RTLD_NOLOAD runs no constructor.
    let handle = unsafe { libc::dlopen(object.path.as_ptr(), mode) };
    if handle.is_null() {
        forget_error();
        return false;
    }
    // SAFETY: closed once; RTLD_NODELETE keeps it loaded.
    unsafe { libc::dlclose(handle) };
    true
}

/// Drops the error text that a failed look-up of ours left for `dlerror`.
pub(crate) fn forget_error() {
    // SAFETY: dlerror touches the calling thread's own state.
    unsafe { libc::dlerror() };
}

/// Whether `address` lies in this library.
pub(crate) fn is_own(address: *const c_void) -> bool {
    own_image().contains(&(address as usize))
}

fn own_image() -> Range<usize> {
    unsafe extern "C" {
        #[link_name = "__ehdr_start"]
        static START: u8;
        #[link_name = "_end"]
        static END: u8;
    }
    (&raw const START) as usize..(&raw const END) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_dlsym_finds_what_libc_defines() {
        let dlsym = real_dlsym().unwrap();
        // SAFETY: the arguments are a pseudo-handle and a C string.
        let found = unsafe { dlsym(libc::RTLD_DEFAULT, c"getpid".as_ptr()) };
        assert!(Object::holding(found).unwrap().file_name().starts_with(b"libc.so"));
    }

    #[test]
    fn anywhere_finds_the_defining_object_only() {
        let found = Wanted { name: c"getpid", version: None }.anywhere(is_own as *const c_void).unwrap();
        assert!(Object::holding(found).unwrap().file_name().starts_with(b"libc.so"));
        assert!(Wanted { name: c"getpid", version: Some(FIRST_GLIBC) }.anywhere(is_own as *const c_void).is_some());
        assert!(
            Wanted { name: c"getpid", version: Some(c"libcudart.so.12") }.anywhere(is_own as *const c_void).is_none()
        );
        assert!(Wanted { name: c"cudaMemcpyPeer", version: None }.anywhere(is_own as *const c_void).is_none());
    }

    #[test]
    fn own_image_holds_this_function_and_not_libc() {
        assert!(is_own(own_image_holds_this_function_and_not_libc as *const c_void));
        assert!(!is_own(libc::getpid as *const c_void));
    }

    #[test]
    fn loaded_objects_bases_agree_with_dladdr() {
        let objects = loaded_objects();
        let libc = Object::holding(libc::getpid as *const c_void).unwrap();
        assert!(objects.iter().any(|object| object.base == libc.base && object.path == libc.path));
        let own = Object::holding(is_own as *const c_void).unwrap();
        assert!(objects.iter().any(|object| object.base == own.base && object.path.is_empty()));
    }
}
