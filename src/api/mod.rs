//! The functions that are intercepted: their table, and the C types in their signatures.

#![forbid(unsafe_code)]

pub(crate) mod abi;
pub(crate) mod codes;

use std::ffi::CStr;

/// Which library a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// libcudart: names what the program asked for.
    Runtime,
    /// libcuda: where every client of CUDA ends.
    Driver,
    /// libamdhip64: all of AMD's runtime, with no layer below it that has these functions.
    Hip,
    /// libnvidia-ml: what NVIDIA's management library says of devices.
    Nvml,
}

impl Layer {
    pub(crate) const ALL: [Self; 4] = [Self::Runtime, Self::Driver, Self::Hip, Self::Nvml];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Driver => "driver",
            Self::Hip => "hip",
            Self::Nvml => "nvml",
        }
    }
}

/// A function's meaning to the shim: the first column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// None: the call is forwarded and traced.
    Traced,
    /// It copies between devices, and is traced.
    Copy(CopyKind),
    /// It makes many copies, some of which may be between devices; it is traced if any is.
    Copies(Copies),
    /// It copies between a device and the host. It is forwarded; two together may be seen as a copy between devices.
    Host(Half),
    /// It changes peer access, or asks about it, and is traced.
    Access(AccessKind),
    /// It changes something that copies and peer access depend on. It is forwarded, and not traced.
    State(State),
    /// It hands out functions.
    Lookup,
    /// It matters to the checker of order alone. If that is off, look-ups leave the function to the driver, unless it sets memory: then a failure
    /// is noted.
    Order(Order),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyKind {
    /// It copies on a stream, and returns before that is done.
    pub(crate) is_async: bool,
    /// CUDA refuses it on a stream that is being captured.
    pub(crate) is_refused_in_capture: bool,
    /// It names no devices: under unified addressing its pointers say whether it goes between two.
    pub(crate) is_regular: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "as the rows spell them")]
pub(crate) enum Copies {
    /// It launches a graph.
    graph,
    /// Its arguments list them.
    batch,
    /// A batch as parameters of 3D copies.
    batch_3d,
}

/// A half of the way from device to device through the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "as the rows spell them")]
pub(crate) enum Half {
    download,
    upload,
}

/// A function's part in peer access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "as the rows spell them")]
pub(crate) enum AccessKind {
    enable,
    disable,
    /// Tells whether there can be access, or what it is like.
    query,
    /// A query for several operations at once; no rule is about it.
    query_capabilities,
}

/// The state that a function changes. `call/change.rs` acts on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "as the rows spell them")]
pub(crate) enum State {
    begins_capture,
    clears_last_error,
    creates_3d_array,
    creates_array,
    creates_context,
    creates_green_stream,
    creates_old_array,
    creates_memory,
    creates_pool,
    creates_stream,
    destroys_array,
    destroys_context,
    destroys_graph,
    destroys_green_context,
    destroys_pool,
    destroys_stream,
    ends_capture,
    frees_memory,
    gets_nvml_status,
    gets_pool_access,
    exports_memory,
    imports_memory,
    imports_pointer,
    imports_pool,
    instantiates_graph,
    loads_module,
    moves_memory,
    opens_memory,
    records_event_of_context,
    releases_primary_context,
    resets_device,
    resets_primary_context,
    restores_process,
    sets_device,
    sets_graph_node,
    sets_limit,
    sets_mapped_access,
    sets_pool_access,
    unloads_module,
    unmaps_memory,
    updates_graph,
    /// It only waits: others are told of that while it lasts.
    waits,
    waits_for_context,
    waits_for_stream,
}

/// A function's part in the order of work. `call/order/calls.rs` acts on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "as the rows spell them")]
pub(crate) enum Order {
    allocates_at_once,
    allocates_memory,
    calls_host,
    context_waits_for_event,
    destroys_event,
    exports_event,
    green_context_waits_for_event,
    launches,
    launches_configured,
    launches_graph,
    launches_on_devices,
    makes_memory_operations,
    opens_event,
    queries_event,
    queries_stream,
    records_event,
    records_event_of_green_context,
    sets_memory,
    signals,
    waits_for_event,
    waits_for_signals,
    waits_for_value,
    writes_value,
}

impl Effect {
    /// Whether calls appear in the log and in traces.
    pub(crate) fn is_traced(self) -> bool {
        matches!(self, Self::Traced | Self::Copy(_) | Self::Copies(_) | Self::Access(_))
    }

    /// Whether a trace may have calls.
    pub(crate) fn may_be_in_traces(self) -> bool {
        self.is_traced() || matches!(self, Self::Host(_) | Self::State(_))
    }
}

include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// The other columns of a function: where its texts begin in [`TEXT`], how long the name is, which ends in a NUL, how long it is without suffixes, and how
/// long the arguments are.
struct Row {
    since: i32,
    at: u16,
    name: u8,
    base: u8,
    arguments: u8,
    per_thread: bool,
}

// A trace record has one byte for the number, and 255 is none of them; what is kept of a call is the number plus one. Functions that are in no record
// come last.
#[expect(clippy::indexing_slicing, reason = "the index is below the length")]
const _: () = {
    let mut recorded = ALL.len();
    while recorded > 0 && matches!(EFFECTS[recorded - 1], Effect::Order(_)) {
        recorded -= 1;
    }
    assert!(recorded < u8::MAX as usize - 1);
    let mut at = 0;
    while at < recorded {
        assert!(!matches!(EFFECTS[at], Effect::Order(_)));
        at += 1;
    }
};

/// The newest CUDA version whose signatures the table knows. A function asked for by a later
/// version may be another one under the same name.
pub(crate) const NEWEST_KNOWN_VERSION: i32 = 13_999;

/// The argument that the runtime's batch functions lost with 13.0.
pub(crate) const FAIL_INDEX: &str = "failIdx";

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

#[expect(clippy::indexing_slicing, reason = "each function has its place")]
impl Function {
    /// All rows, in the order of the table.
    pub(crate) const ALL: &[Self] = ALL;

    #[inline(always)]
    pub(crate) const fn layer(self) -> Layer {
        LAYERS[self as usize]
    }

    /// Whether it is a copy that names no devices.
    #[inline(always)]
    pub(crate) const fn is_regular(self) -> bool {
        matches!(self.effect(), Effect::Copy(CopyKind { is_regular: true, .. }))
    }

    /// Its meaning to the shim.
    #[inline(always)]
    pub(crate) const fn effect(self) -> Effect {
        EFFECTS[self as usize]
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    fn text(self, from: usize, bytes: usize) -> &'static str {
        let start = usize::from(self.row().at) + from;
        TEXT.get(start..start + bytes).unwrap_or_default()
    }

    pub(crate) fn name(self) -> &'static str {
        self.text(0, self.row().name.into())
    }

    pub(crate) fn c_name(self) -> &'static CStr {
        CStr::from_bytes_with_nul(self.text(0, usize::from(self.row().name) + 1).as_bytes()).unwrap_or_default()
    }

    /// The version of CUDA or HIP that introduced it, as `cuGetProcAddress` counts.
    pub(crate) fn since(self) -> i32 {
        self.row().since
    }

    /// The C names of its parameters.
    pub(crate) fn arguments(self) -> impl Iterator<Item = &'static str> + Clone {
        let Row { name, arguments, .. } = self.row();
        self.text(usize::from(*name) + 1, (*arguments).into()).split(' ').filter(|name| !name.is_empty())
    }

    /// Whether its streams default to one per thread (`_ptds`, `_ptsz`).
    pub(crate) fn per_thread(self) -> bool {
        self.row().per_thread
    }

    /// The name by which `cuGetProcAddress` knows it: without stream and version suffix. Of HIP likewise, without `_spt`.
    pub(crate) fn base(self) -> &'static str {
        self.text(0, self.row().base.into())
    }

    /// The function that is exported under exactly this name.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        // Nearly every name looked up in a process is none of ours: leave early.
        if !matches!(name, [b'c', b'u', ..] | [b'h', b'i', b'p', ..] | [b'n', b'v', b'm', b'l', ..]) {
            return None;
        }
        Self::ALL.iter().copied().find(|function| function.name().as_bytes() == name)
    }

    pub(crate) fn of_the_driver() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|f| f.layer() == Layer::Driver)
    }

    /// The forms among which `cuGetProcAddress` chooses for `base`.
    pub(crate) fn variants(base: &[u8]) -> impl Iterator<Item = Self> {
        Self::of_the_driver().filter(move |f| f.base().as_bytes() == base)
    }

    /// The form that `cuGetProcAddress` documents for a name, version and flags: the newest that is
    /// not newer than `version`, with the default stream that `flags` ask for where there is a choice.
    pub(crate) fn variant(base: &[u8], version: i32, flags: u64) -> Option<Self> {
        if version > NEWEST_KNOWN_VERSION {
            return None;
        }
        let per_thread = flags & PER_THREAD_DEFAULT_STREAM != 0;
        Self::variants(base)
            .filter(|f| f.since() <= version && (per_thread || !f.per_thread()))
            .max_by_key(|f| (f.per_thread(), f.since()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_every_row_is_found_by_its_exact_name_only() {
        for &function in Function::ALL {
            assert_eq!(Function::named(function.name().as_bytes()), Some(function));
            assert_eq!(function.c_name().to_str(), Ok(function.name()));
        }
        for other in [
            "",
            "cuda",
            "cudaMemcpyToSymbol",
            "cudaMemcpyPeerAsyncs",
            "cudaMemcpyPee",
            "hipMemcpyToSymbol",
            "hipMemcpyPeer_spt",
            "hip",
            "malloc",
        ] {
            assert_eq!(Function::named(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn base_suffixes_are_cut_off() {
        assert_eq!(Function::cuMemcpyPeer_ptds.base(), "cuMemcpyPeer");
        assert_eq!(Function::cuMemcpy3DPeerAsync_ptsz.base(), "cuMemcpy3DPeerAsync");
        assert_eq!(Function::cuGetProcAddress_v2.base(), "cuGetProcAddress");
        assert_eq!(Function::cuDeviceGetP2PAttribute.base(), "cuDeviceGetP2PAttribute");
        assert_eq!(Function::hipMemcpy2DAsync_spt.base(), "hipMemcpy2DAsync");
    }

    #[test]
    fn variant_follows_version_and_flags() {
        let variant = |base: &str, version, flags| Function::variant(base.as_bytes(), version, flags);
        assert_eq!(variant("cuMemcpyPeer", 4000, 0), Some(Function::cuMemcpyPeer));
        assert_eq!(variant("cuMemcpyPeer", 13000, 0), Some(Function::cuMemcpyPeer));
        assert_eq!(variant("cuMemcpyPeer", 7000, 2), Some(Function::cuMemcpyPeer_ptds));
        assert_eq!(variant("cuMemcpyPeerAsync", 7000, 2), Some(Function::cuMemcpyPeerAsync_ptsz));
        assert_eq!(variant("cuMemcpyPeer", 4000, 2), Some(Function::cuMemcpyPeer));
        assert_eq!(variant("cuCtxEnablePeerAccess", 12000, 2), Some(Function::cuCtxEnablePeerAccess));
        assert_eq!(variant("cuGetProcAddress", 11030, 0), Some(Function::cuGetProcAddress));
        assert_eq!(variant("cuGetProcAddress", 11080, 2), Some(Function::cuGetProcAddress));
        assert_eq!(variant("cuGetProcAddress", 12000, 0), Some(Function::cuGetProcAddress_v2));
        assert_eq!(variant("cuMemcpyPeer", 3020, 0), None, "older than the function");
        assert_eq!(variant("cuMemcpyPeer", 14000, 0), None, "newer than the table");
        assert_eq!(variant("cudaMemcpyPeer", 12000, 0), None, "not a driver function");
        assert_eq!(variant("cuMemcpyPeer_ptds", 12000, 0), None, "not a base name");
        assert_eq!(variant("", 0, 0), None);
    }
}
