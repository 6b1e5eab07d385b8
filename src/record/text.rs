//! A call as a line of text, in the manner of strace.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::iter;

use p2pshim_host::text::Elapsed;

use super::hipify::hipify;
use super::summary::Endpoint;
use super::{Argument, CallSite, Contents, Event, FindingLine, Place};
use crate::api::abi::{
    CUDA_MEMCPY3D_PEER, Code, MEMORYTYPE_ARRAY, MEMORYTYPE_HOST, Value, cudaMemcpy3DPeerParms, cudaPitchedPtr, cudaPos,
};
use crate::api::{Layer, codes};
use crate::model::finding::documents;
use crate::model::{Part, Path, Traffic};

impl Display for Event<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        // A call's line is written when it returns, so those inside it stand above it, further in.
        write!(out, "{:indent$}{}(", "", self.function.name(), indent = 2 * self.depth)?;
        for (position, argument) in self.arguments.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(out, "{separator}{}=", argument.name)?;
            show_argument(out, argument, self.function.layer())?;
        }
        out.write_str(") = ")?;
        let given = self.given;
        match codes::name(self.function.layer(), self.ret) {
            Some(name) => out.write_str(name)?,
            None => write!(out, "{}", given.0)?,
        }
        if given != self.ret {
            write!(out, " ({})", given.0)?;
        }
        for argument in self.arguments {
            if let Some(Contents::Int(written)) = argument.contents {
                write!(out, " *{}={written}", argument.name)?;
            }
        }
        write!(out, " <{}>", Elapsed(self.elapsed))?;
        if let Some(device) = self.device {
            write!(out, " on device {device}")?;
        }
        let separators = iter::once("").chain(iter::repeat(","));
        for (Part { traffic, copies }, separator) in self.parts.iter().zip(separators) {
            let Traffic { src, dst, path, bytes, .. } = traffic;
            let word = if *copies == 1 { "copy" } else { "copies" };
            let (src, dst) = (Endpoint(*src), Endpoint(*dst));
            write!(out, "{separator} {src}>{dst} {path} ({copies} {word}, {bytes} bytes)")?;
        }
        if let Some((src, dst)) = self.pair {
            let end = |device: i32| {
                u8::try_from(device).map_or_else(|_| device.to_string(), |device| Endpoint(device).to_string())
            };
            write!(out, " {}>{}", end(src), end(dst))?;
        }
        if let Some(path) = self.path.filter(|path| *path != Path::Captured || self.note.is_none()) {
            write!(out, " {path}")?;
        }
        if let Some(note) = self.note {
            write!(out, " {note}")?;
        }
        match &self.caller {
            Some(caller) => write!(out, " at {caller}"),
            None => Ok(()),
        }
    }
}

impl Display for CallSite {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if let Some(line) = &self.line {
            write!(out, "{line}, ")?;
        }
        for (index, place) in self.places.iter().enumerate() {
            write!(out, "{}{place}", if index == 0 { "" } else { " < " })?;
        }
        Ok(())
    }
}

impl Display for Place {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}+{:#x}", self.module, self.offset)?;
        match &self.symbol {
            Some(symbol) => write!(out, " ({symbol})"),
            None => Ok(()),
        }
    }
}

/// A finding, as the log says it.
pub(super) struct Found<'a> {
    pub(super) said: FindingLine<'a>,
    pub(super) caller: Option<CallSite>,
    /// Whether it goes without what the rule means, and what to do.
    pub(super) is_brief: bool,
}

impl Display for Found<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let FindingLine { function, finding, ret, numbering } = self.said;
        let (rule, text) = (finding.rule, finding.rule.text());
        write!(out, "{} ({}): {}", rule.id(), text.severity.name(), function.name())?;
        if let Some(caller) = &self.caller {
            write!(out, " at {caller}")?;
        }
        write!(out, ": {}", finding.what)?;
        let named = |code: Code| match (codes::name(function.layer(), code), numbering.given(code)) {
            (Some(name), Code(given)) => format!("{name} ({given})"),
            (None, Code(given)) => given.to_string(),
        };
        let code = finding.code.filter(|&code| documents(function, code));
        match (ret, code) {
            (None, Some(code)) => write!(out, "; documented: {}; the library may crash now", named(code))?,
            (Some(Code::SUCCESS), Some(code)) => write!(out, "; accepted, but documented: {}", named(code))?,
            (None, None) => out.write_str("; the library may crash now")?,
            (Some(Code::SUCCESS), None) => {}
            (Some(ret), Some(code)) if ret != code => {
                write!(out, "; returned {}, documented: {}", named(ret), named(code))?;
            }
            (Some(ret), _) => write!(out, "; returned {}", named(ret))?,
        }
        let shown = |text: &'static str| match function.layer() {
            Layer::Hip => Cow::Owned(hipify(text)),
            _ => Cow::Borrowed(text),
        };
        if !self.is_brief {
            write!(out, ". {} {}", shown(text.why), shown(text.remedy))?;
        }
        write!(out, " (p2pshim explain {})", rule.id())
    }
}

fn show_argument(out: &mut Formatter<'_>, argument: &Argument, layer: Layer) -> fmt::Result {
    match (argument.value, &argument.contents) {
        (_, Some(Contents::RuntimePeer3D(parms))) => show_runtime_3d(out, parms, true),
        (_, Some(Contents::DriverPeer3D(parms))) => show_driver_3d(out, parms, true),
        (_, Some(Contents::Runtime3D(parms))) => show_runtime_3d(out, parms, false),
        (_, Some(Contents::Driver3D(parms))) => show_driver_3d(out, parms, false),
        (Value::Stream(handle), _) => show_stream(out, handle, layer),
        (Value::P2pAttribute(attribute), _) => match p2p_attribute(layer, attribute) {
            Some(name) => out.write_str(name),
            None => write!(out, "{attribute}"),
        },
        (Value::MemcpyKind(kind), _) => match memcpy_kind(kind) {
            Some(name) => write!(out, "{}Memcpy{name}", if layer == Layer::Hip { "hip" } else { "cuda" }),
            None => write!(out, "{kind}"),
        },
        (Value::Ordinal(n), _) => write!(out, "{n}"),
        (Value::Int(n), _) => write!(out, "{n}"),
        (Value::UInt(n), _) => write!(out, "{n}"),
        (Value::Address(address), _) => Address(address).fmt(out),
        (Value::OutInt(output), _) => Address(output as usize).fmt(out),
        (Value::RuntimePeer3D(parms), _) => Address(parms as usize).fmt(out),
        (Value::DriverPeer3D(parms) | Value::Driver3D(parms), _) => Address(parms as usize).fmt(out),
        (Value::Runtime3D(parms), _) => Address(parms as usize).fmt(out),
        (Value::Driver2D(parms), _) => Address(parms as usize).fmt(out),
    }
}

fn show_stream(out: &mut Formatter<'_>, handle: usize, layer: Layer) -> fmt::Result {
    match (handle, layer) {
        (0, _) => out.write_str("NULL"),
        (1, Layer::Runtime) => out.write_str("cudaStreamLegacy"),
        (2, Layer::Runtime) => out.write_str("cudaStreamPerThread"),
        (1, Layer::Hip) => out.write_str("hipStreamLegacy"),
        (2, Layer::Hip) => out.write_str("hipStreamPerThread"),
        (1, Layer::Driver) => out.write_str("CU_STREAM_LEGACY"),
        (2, Layer::Driver) => out.write_str("CU_STREAM_PER_THREAD"),
        _ => write!(out, "{handle:#x}"),
    }
}

fn p2p_attribute(layer: Layer, attribute: i32) -> Option<&'static str> {
    if layer == Layer::Hip {
        return match attribute {
            0 => Some("hipDevP2PAttrPerformanceRank"),
            1 => Some("hipDevP2PAttrAccessSupported"),
            2 => Some("hipDevP2PAttrNativeAtomicSupported"),
            3 => Some("hipDevP2PAttrHipArrayAccessSupported"),
            _ => None,
        };
    }
    let (runtime, driver) = match attribute {
        1 => ("cudaDevP2PAttrPerformanceRank", "CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK"),
        2 => ("cudaDevP2PAttrAccessSupported", "CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED"),
        3 => ("cudaDevP2PAttrNativeAtomicSupported", "CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED"),
        4 => ("cudaDevP2PAttrCudaArrayAccessSupported", "CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED"),
        5 => (
            "cudaDevP2PAttrOnlyPartialNativeAtomicSupported",
            "CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED",
        ),
        _ => return None,
    };
    Some(if layer == Layer::Runtime { runtime } else { driver })
}

fn memcpy_kind(kind: i32) -> Option<&'static str> {
    match kind {
        0 => Some("HostToHost"),
        1 => Some("HostToDevice"),
        2 => Some("DeviceToHost"),
        3 => Some("DeviceToDevice"),
        4 => Some("Default"),
        1024 => Some("DeviceToDeviceNoCU"),
        _ => None,
    }
}

struct Address(usize);

impl Display for Address {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { out.write_str("NULL") } else { write!(out, "{:#x}", self.0) }
    }
}

fn show_runtime_3d(out: &mut Formatter<'_>, p: &cudaMemcpy3DPeerParms, names_devices: bool) -> fmt::Result {
    let named = |device| names_devices.then_some(device);
    out.write_str("{")?;
    show_runtime_side(out, "src", p.srcArray, p.srcPos, p.srcPtr, named(p.srcDevice))?;
    show_runtime_side(out, "dst", p.dstArray, p.dstPos, p.dstPtr, named(p.dstDevice))?;
    write!(out, "extent={{{}, {}, {}}}}}", p.extent.width, p.extent.height, p.extent.depth)
}

fn show_runtime_side(
    out: &mut Formatter<'_>,
    side: &str,
    array: usize,
    pos: cudaPos,
    pitched: cudaPitchedPtr,
    device: Option<i32>,
) -> fmt::Result {
    if array != 0 {
        write!(out, "{side}Array={}, ", Address(array))?;
    }
    if array == 0 || pitched.ptr != 0 {
        let cudaPitchedPtr { ptr, pitch, xsize, ysize } = pitched;
        write!(out, "{side}Ptr={{ptr={}, pitch={pitch}, xsize={xsize}, ysize={ysize}}}, ", Address(ptr))?;
    }
    write!(out, "{side}Pos={{{}, {}, {}}}, ", pos.x, pos.y, pos.z)?;
    device.map_or(Ok(()), |device| write!(out, "{side}Device={device}, "))
}

fn show_driver_3d(out: &mut Formatter<'_>, p: &CUDA_MEMCPY3D_PEER, names_contexts: bool) -> fmt::Result {
    let named = |side: &str, context| match names_contexts {
        true => format!("{side}Context={}, ", Address(context)),
        false => String::new(),
    };
    let memory = |kind, host, device: u64, array| match kind {
        MEMORYTYPE_HOST => ("Host", host),
        MEMORYTYPE_ARRAY => ("Array", array),
        _ => ("Device", device as usize),
    };
    let (src_kind, src) = memory(p.srcMemoryType, p.srcHost, p.srcDevice, p.srcArray);
    let (dst_kind, dst) = memory(p.dstMemoryType, p.dstHost, p.dstDevice, p.dstArray);
    write!(
        out,
        "{{src{src_kind}={}, {}srcXInBytes={}, srcY={}, srcZ={}, srcPitch={}, srcHeight={}, ",
        Address(src),
        named("src", p.srcContext),
        p.srcXInBytes,
        p.srcY,
        p.srcZ,
        p.srcPitch,
        p.srcHeight
    )?;
    write!(
        out,
        "dst{dst_kind}={}, {}dstXInBytes={}, dstY={}, dstZ={}, dstPitch={}, dstHeight={}, ",
        Address(dst),
        named("dst", p.dstContext),
        p.dstXInBytes,
        p.dstY,
        p.dstZ,
        p.dstPitch,
        p.dstHeight
    )?;
    write!(out, "WidthInBytes={}, Height={}, Depth={}}}", p.WidthInBytes, p.Height, p.Depth)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::Function;
    use crate::api::abi::cudaExtent;

    fn argument(name: &'static str, value: Value, contents: Option<Contents>) -> Argument {
        Argument { name, value, contents }
    }

    fn event<'a>(function: Function, arguments: &'a [Argument], ret: Code) -> Event<'a> {
        Event {
            function,
            depth: 0,
            arguments,
            ret,
            given: ret,
            elapsed: Duration::from_nanos(1_340),
            device: None,
            pair: None,
            path: None,
            parts: &[],
            note: None,
            caller: None,
        }
    }

    #[test]
    fn event_copy_reads_like_strace() {
        let arguments = [
            argument("dst", Value::Address(0x7f00), None),
            argument("dstDevice", Value::Ordinal(1), None),
            argument("src", Value::Address(0), None),
            argument("srcDevice", Value::Ordinal(0), None),
            argument("count", Value::UInt(64), None),
            argument("stream", Value::Stream(2), None),
        ];
        let mut event = event(Function::cudaMemcpyPeerAsync, &arguments, Code(1));
        event.pair = Some((0, 1));
        event.path = Some(Path::Direct);
        event.note = Some("captured as cuMemcpyAsync_ptsz");
        let place = Place { module: "app".into(), offset: 0x1189, symbol: Some("main".into()) };
        event.caller = Some(CallSite { places: vec![place], line: None });
        assert_eq!(
            event.to_string(),
            "cudaMemcpyPeerAsync(dst=0x7f00, dstDevice=1, src=NULL, srcDevice=0, count=64, stream=cudaStreamPerThread) \
             = cudaErrorInvalidValue <1.3us> 0>1 direct captured as cuMemcpyAsync_ptsz at app+0x1189 (main)"
        );
    }

    #[test]
    fn event_that_depends_on_the_current_device_names_it() {
        let arguments = [argument("peerDevice", Value::Ordinal(0), None), argument("flags", Value::UInt(0), None)];
        let mut event = event(Function::cudaDeviceEnablePeerAccess, &arguments, Code(704));
        event.device = Some(1);
        assert_eq!(
            event.to_string(),
            "cudaDeviceEnablePeerAccess(peerDevice=0, flags=0) = cudaErrorPeerAccessAlreadyEnabled <1.3us> on device 1"
        );
    }

    #[test]
    fn event_child_is_indented_and_output_follows_the_result() {
        let arguments = [
            argument("canAccessPeer", Value::OutInt(0x10 as *mut i32), Some(Contents::Int(1))),
            argument("dev", Value::Ordinal(0), None),
            argument("peerDev", Value::Ordinal(1), None),
        ];
        let mut event = event(Function::cuDeviceCanAccessPeer, &arguments, Code::SUCCESS);
        event.depth = 1;
        event.elapsed = Duration::from_nanos(70);
        assert_eq!(
            event.to_string(),
            "  cuDeviceCanAccessPeer(canAccessPeer=0x10, dev=0, peerDev=1) = CUDA_SUCCESS *canAccessPeer=1 <70ns>"
        );
    }

    #[test]
    fn event_of_an_old_runtime_has_its_number_too() {
        let event = Event { given: Code(50), ..event(Function::cudaDeviceEnablePeerAccess, &[], Code(704)) };
        assert!(event.to_string().contains(" = cudaErrorPeerAccessAlreadyEnabled (50) <"), "{event}");
    }

    #[test]
    fn event_unknown_code_is_shown_as_a_number() {
        assert!(event(Function::cuMemcpyPeer, &[], Code(12345)).to_string().contains(" = 12345 <"));
    }

    #[test]
    fn event_3d_shows_the_parameters() {
        let side = |ptr| cudaPitchedPtr { ptr, pitch: 1024, xsize: 1000, ysize: 16 };
        let origin = cudaPos { x: 0, y: 0, z: 0 };
        let parms = cudaMemcpy3DPeerParms {
            srcArray: 0,
            srcPos: cudaPos { x: 4, y: 0, z: 0 },
            srcPtr: side(0xa000),
            srcDevice: 0,
            dstArray: 0xc0,
            dstPos: origin,
            dstPtr: cudaPitchedPtr { ptr: 0, pitch: 0, xsize: 0, ysize: 0 },
            dstDevice: 1,
            extent: cudaExtent { width: 1000, height: 16, depth: 4 },
        };
        let value = Value::RuntimePeer3D(std::ptr::null());
        let arguments = [argument("p", value, Some(Contents::RuntimePeer3D(parms)))];
        assert_eq!(
            event(Function::cudaMemcpy3DPeer, &arguments, Code(12)).to_string(),
            "cudaMemcpy3DPeer(p={srcPtr={ptr=0xa000, pitch=1024, xsize=1000, ysize=16}, srcPos={4, 0, 0}, srcDevice=0, \
             dstArray=0xc0, dstPos={0, 0, 0}, dstDevice=1, extent={1000, 16, 4}}) = cudaErrorInvalidPitchValue <1.3us>"
        );
        let null = [argument("p", value, None)];
        assert!(
            event(Function::cudaMemcpy3DPeer, &null, Code(1)).to_string().starts_with("cudaMemcpy3DPeer(p=NULL) = ")
        );
    }
}
