//! The shim as this command sees it: a library with a C interface.

use std::error::Error;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use libloading::{Library, Symbol};

/// `p2pshim_api_t`.
#[repr(C)]
struct RawApi {
    size: usize,
    name: *const c_char,
    layer: c_int,
    kind: c_int,
    parameters: *const c_char,
    since: c_int,
}

/// `p2pshim_option_t`.
#[repr(C)]
struct RawOption {
    size: usize,
    name: *const c_char,
    values: *const c_char,
    default_value: *const c_char,
    help: *const c_char,
}

/// `p2pshim_rule_t`.
#[repr(C)]
struct RawRule {
    size: usize,
    id: *const c_char,
    severity: c_int,
    functions: *const c_char,
    documentation: *const c_char,
    hardware: *const c_char,
    why: *const c_char,
    remedy: *const c_char,
    runtime_code: c_int,
    driver_code: c_int,
    runtime_code_name: *const c_char,
    driver_code_name: *const c_char,
    times: u64,
}

type Count = unsafe extern "C" fn() -> usize;
type Get<T> = unsafe extern "C" fn(usize, *mut T) -> c_int;

/// An intercepted function.
pub(crate) struct Api {
    pub(crate) name: String,
    pub(crate) layer: String,
    pub(crate) kind: String,
    pub(crate) parameters: String,
    pub(crate) since: i32,
}

/// An environment variable that the shim reads.
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) values: String,
    pub(crate) default: String,
    pub(crate) help: String,
}

/// A rule about peer calls.
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) severity: String,
    pub(crate) functions: String,
    pub(crate) documentation: String,
    pub(crate) hardware: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
    /// The documented codes of the runtime and of the driver, with their names.
    pub(crate) codes: [Option<String>; 2],
}

/// A loaded shim.
pub(crate) struct Shim {
    library: Library,
}

/// Why the shim could not be asked.
#[derive(Debug)]
pub(crate) enum ShimError {
    /// It is in none of the usual places.
    NotFound(Vec<PathBuf>),
    /// The dynamic linker refused it.
    Load(libloading::Error),
    /// It lacks a function of the C interface, or refuses a struct: another version.
    Interface(&'static str),
}

impl Error for ShimError {}

impl Display for ShimError {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(places) => {
                let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
                write!(out, "libp2pshim.so not found; looked for {}. Pass its path with --library", places.join(", "))
            }
            Self::Load(error) => write!(out, "{}", linkers_words(error)),
            Self::Interface(function) => {
                write!(
                    out,
                    "{function} failed: the library is not the shim, or its version differs from that of this command"
                )
            }
        }
    }
}

/// The dynamic linker's own words, which name the file or function that is missing.
pub(crate) fn linkers_words(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

impl Shim {
    /// Loads the shim at `path`, or the one that was built or installed with this program.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, ShimError> {
        let path = find(path)?;
        // SAFETY: the shim does nothing when it is loaded.
        match unsafe { Library::new(path.as_os_str()) } {
            Ok(library) => Ok(Self { library }),
            Err(error) => Err(ShimError::Load(error)),
        }
    }

    /// The functions that it intercepts.
    pub(crate) fn apis(&self) -> Result<Vec<Api>, ShimError> {
        let blank = || RawApi {
            size: size_of::<RawApi>(),
            name: std::ptr::null(),
            layer: 0,
            kind: 0,
            parameters: std::ptr::null(),
            since: 0,
        };
        // SAFETY: the types are those of include/p2pshim.h.
        let rows = unsafe { self.rows("p2pshim_api_count", "p2pshim_api_get", blank) }?;
        let api = |raw: RawApi| {
            let RawApi { name, layer, kind, parameters, since, .. } = raw;
            Api {
                name: text(name),
                layer: one_of(&LAYERS, layer),
                kind: one_of(&KINDS, kind),
                parameters: text(parameters),
                since,
            }
        };
        Ok(rows.into_iter().map(api).collect())
    }

    /// The options that it reads from the environment.
    pub(crate) fn options(&self) -> Result<Vec<Variable>, ShimError> {
        let blank = || RawOption {
            size: size_of::<RawOption>(),
            name: std::ptr::null(),
            values: std::ptr::null(),
            default_value: std::ptr::null(),
            help: std::ptr::null(),
        };
        // SAFETY: the types are those of include/p2pshim.h.
        let rows = unsafe { self.rows("p2pshim_option_count", "p2pshim_option_get", blank) }?;
        let option = |raw: RawOption| {
            let RawOption { name, values, default_value, help, .. } = raw;
            Variable { name: text(name), values: text(values), default: text(default_value), help: text(help) }
        };
        Ok(rows.into_iter().map(option).collect())
    }

    /// The rules that it knows.
    pub(crate) fn rules(&self) -> Result<Vec<Rule>, ShimError> {
        let null = std::ptr::null();
        let blank = || RawRule {
            size: size_of::<RawRule>(),
            id: null,
            severity: 0,
            functions: null,
            documentation: null,
            hardware: null,
            why: null,
            remedy: null,
            runtime_code: 0,
            driver_code: 0,
            runtime_code_name: null,
            driver_code_name: null,
            times: 0,
        };
        // SAFETY: the types are those of include/p2pshim.h.
        let rows = unsafe { self.rows("p2pshim_rule_count", "p2pshim_rule_get", blank) }?;
        let code = |code: c_int, name| (code != 0).then(|| format!("{code} ({})", text(name)));
        let rule = |raw: RawRule| Rule {
            id: text(raw.id),
            severity: one_of(&SEVERITIES, raw.severity),
            functions: text(raw.functions),
            documentation: text(raw.documentation),
            hardware: text(raw.hardware),
            why: text(raw.why),
            remedy: text(raw.remedy),
            codes: [code(raw.runtime_code, raw.runtime_code_name), code(raw.driver_code, raw.driver_code_name)],
        };
        Ok(rows.into_iter().map(rule).collect())
    }

    /// # Safety
    /// `count` and `get` name functions of the C interface that enumerate structs of type `T`.
    unsafe fn rows<T>(
        &self,
        count: &'static str,
        get: &'static str,
        blank: impl Fn() -> T,
    ) -> Result<Vec<T>, ShimError> {
        // SAFETY: the caller's promise, for both.
        let count_rows: Symbol<'_, Count> =
            unsafe { self.library.get(count.as_bytes()) }.map_err(|_| ShimError::Interface(count))?;
        // SAFETY: as above.
        let get_row: Symbol<'_, Get<T>> =
            unsafe { self.library.get(get.as_bytes()) }.map_err(|_| ShimError::Interface(get))?;
        // SAFETY: the function takes nothing.
        let rows = unsafe { count_rows() };
        if rows == 0 {
            // The library that programs are linked with has the functions and nothing in them.
            return Err(ShimError::Interface(count));
        }
        (0..rows)
            .map(|index| {
                let mut row = blank();
                // SAFETY: `row` has the size that its first field says.
                match unsafe { get_row(index, &mut row) } {
                    0 => Ok(row),
                    _ => Err(ShimError::Interface(get)),
                }
            })
            .collect()
    }
}

/// The names of `p2pshim_layer_t`, `p2pshim_kind_t` and `p2pshim_severity_t`, from 1 on.
const LAYERS: [&str; 4] = ["runtime", "driver", "hip", "nvml"];
const KINDS: [&str; 3] = ["traced", "state", "lookup"];
const SEVERITIES: [&str; 4] = ["error", "hazard", "performance", "note"];

fn one_of(names: &[&str], number: c_int) -> String {
    let name = usize::try_from(number).ok().and_then(|number| names.get(number.checked_sub(1)?));
    name.map_or_else(|| format!("unknown {number}"), |name| (*name).to_owned())
}

/// A text of the shim; they live as long as the library, which is never unloaded.
fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the interface promises C strings.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Where the shim may be, seen from the folder of this program: installed, and in the build tree, where it has the name that
/// cargo gives. Installed, that name is the library that programs are linked with.
const PLACES: [&str; 4] =
    ["../lib/libp2pshim.so.0", "../lib/x86_64-linux-gnu/libp2pshim.so.0", "../lib64/libp2pshim.so.0", "libp2pshim.so"];

/// Where the shim is, from the root on: at `path`, or the one that was built or installed with this program.
pub(crate) fn find(path: Option<&Path>) -> Result<PathBuf, ShimError> {
    let path = match path {
        Some(path) => path.to_owned(),
        None => with_this_program()?,
    };
    // A bare file name would be searched for on the library path. It is as good as before if it cannot be made longer.
    Ok(std::path::absolute(&path).unwrap_or(path))
}

fn with_this_program() -> Result<PathBuf, ShimError> {
    let program = crate::processes::own_path().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("."));
    // Without `..`, so that LD_PRELOAD stays readable.
    let beside = |place: &str| match place.strip_prefix("../") {
        Some(rest) => folder.parent().unwrap_or(folder).join(rest),
        None => folder.join(place),
    };
    let places: Vec<_> = PLACES.into_iter().map(beside).collect();
    match places.iter().find(|place| place.exists()) {
        Some(place) => Ok(place.clone()),
        None => Err(ShimError::NotFound(places)),
    }
}
