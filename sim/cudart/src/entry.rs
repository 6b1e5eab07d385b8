//! How a call gets in: the C ABI, the driver, the last error.

use crate::driver::{self, Driver};
use crate::error::{Result, given};
use crate::thread;

/// Defines exported functions. The body is a block that ends in a [`Result`].
///
/// `fn name [driver] (…)` exports one function; `driver` is the driver in its body, which does not run
/// without one. `fn name | variant [driver, default] (…)` exports two that differ in what `default`, a
/// `DefaultStream`, is in the body. The ABI lets a thread be cancelled while it waits in a call.
macro_rules! api {
    () => {};
    ($(#[$doc:meta])* fn $name:ident [$driver:ident] ($($arg:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C-unwind" fn $name($($arg: $type),*) -> u32 {
            $crate::entry::call(move |$driver| $body)
        }
        $crate::entry::api!($($rest)*);
    };
    ($(#[$doc:meta])* fn $name:ident | $variant:ident [$driver:ident, $default:ident]
     ($($arg:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $crate::entry::api! {
            $(#[$doc])*
            fn $name [$driver] ($($arg: $type),*) {
                let $default = $crate::driver::DefaultStream::Legacy;
                $body
            }
            $(#[$doc])*
            fn $variant [$driver] ($($arg: $type),*) {
                let $default = $crate::driver::DefaultStream::PerThread;
                $body
            }
            $($rest)*
        }
    };
}
pub(crate) use api;

/// Runs the body of an exported function, remembers its failure and gives the caller its code.
pub(crate) fn call(body: impl FnOnce(&'static Driver) -> Result<()>) -> u32 {
    let code = driver::get().and_then(body).map_or_else(|error| error.0, |()| 0);
    thread::remember(code);
    given(code)
}
