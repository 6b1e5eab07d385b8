//! Pointers that C callers hand in.
//!
//! Values of these types come into being only as arguments of exported functions (or as fields of what such
//! an argument points to). The caller of such a function promises, by the documentation of the API, that a pointer is NULL
//! or points to what its type says, for as long as the call lasts: that is why the methods can be safe.

use std::ffi::{CStr, c_char, c_void};

use crate::Error;

/// A pointer was NULL that must not be.
pub struct Null;

impl From<Null> for Error {
    fn from(_: Null) -> Error {
        Error::INVALID_VALUE
    }
}

/// Where a caller wants a result.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// An address that the program gave as a number.
    pub fn at(address: u64) -> Out<T> {
        Out(address as *mut T)
    }

    /// Refuses NULL.
    pub fn required(self) -> Result<Self, Null> {
        if self.0.is_null() { Err(Null) } else { Ok(self) }
    }

    /// The address as a number.
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// Stores a result, unless the caller wants none.
    pub fn set(self, value: T) {
        self.set_nth(0, value);
    }

    /// Stores one of several results.
    pub fn set_nth(self, index: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: not NULL, so the caller promises room for as many values as the API stores (module comment).
            unsafe { self.0.add(index).write_unaligned(value) };
        }
    }
}

impl<T: Copy + Default> Out<T> {
    /// Reads what the caller has put there, where the API exchanges a value.
    pub fn get(self) -> T {
        // SAFETY: an argument that is exchanged is readable, as the caller promises (module comment).
        if self.0.is_null() { T::default() } else { unsafe { self.0.read_unaligned() } }
    }
}

impl Out<c_char> {
    /// Stores as much of a text as fits into `room` bytes with its terminator.
    pub fn set_text(self, text: &str, room: usize) {
        let Some(last) = room.checked_sub(1) else { return };
        let bytes = text.bytes().take(last).chain([0]);
        bytes.enumerate().for_each(|(index, byte)| self.set_nth(index, byte as c_char));
    }
}

/// Where a caller keeps an argument.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T> In<T> {
    /// An address that the program gave as a number.
    pub fn at(address: u64) -> In<T> {
        In(address as *const T)
    }
}

impl<T: Copy> In<T> {
    /// Reads it; refuses NULL.
    pub fn read(self) -> Result<T, Null> {
        self.read_nth(0)
    }

    /// Reads one of several.
    pub fn read_nth(self, index: usize) -> Result<T, Null> {
        if self.0.is_null() {
            return Err(Null);
        }
        // SAFETY: not NULL, so the caller promises as many values there as the API reads (module comment).
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}

impl<T> From<Out<T>> for In<T> {
    /// An argument that the API reads as well as writes.
    fn from(exchanged: Out<T>) -> In<T> {
        In(exchanged.0)
    }
}

impl<T> In<T> {
    /// The pointer itself, to be handed on.
    pub fn pointer(self) -> *const T {
        self.0
    }
}

impl In<c_char> {
    /// Reads a text; refuses NULL. Bytes that are not UTF-8 become a text that names nothing.
    pub fn text(&self) -> Result<&str, Null> {
        if self.0.is_null() {
            return Err(Null);
        }
        // SAFETY: not NULL, so the caller promises a terminated string that outlives the call (module comment).
        Ok(unsafe { CStr::from_ptr(self.0) }.to_str().unwrap_or("\u{fffd}"))
    }
}

/// A pointer of the program that is only handed on.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Opaque(pub *mut c_void);

// SAFETY: nobody here reads or writes through it; the program decides on which threads it is used.
unsafe impl Send for Opaque {}
// SAFETY: as above.
unsafe impl Sync for Opaque {}

impl Opaque {
    /// NULL.
    pub const NULL: Opaque = Opaque(std::ptr::null_mut());
}
