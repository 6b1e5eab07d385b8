//! The meaning of an error that the program gets.

use super::call::{CallView, Operand, Side, Sides};
use super::rights::refused;
use crate::api::abi::Code;
use crate::api::{Function, Layer, codes};
use crate::model::finding::documents;
use crate::model::rules::Severity;
use crate::model::{Access, Asks, Finding, Named, Request, Rule};
use crate::objects::streams::{Known, State};
use crate::objects::{Objects, captures};
use crate::policy::driver::{Driver, Holder};

/// `cudaErrorStreamCaptureUnsupported`, `…Invalidated`, `…Implicit`.
const CAPTURE_UNSUPPORTED: Code = Code(900);
const CAPTURE_INVALIDATED: Code = Code(901);
const CAPTURE_IMPLICIT: Code = Code(906);
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
const CONTEXT_IS_DESTROYED: Code = Code(709);

/// Explains an error that the program gets, by what is wrong with the arguments if that is it. `otherwise` is what explains it if
/// nothing else does; with a context that is gone a stream is not blamed.
pub(super) fn explain(
    (objects, seen, ret): (&Objects, &CallView<'_>, Code),
    wrong: Vec<Finding>,
    is_context_gone: impl FnOnce() -> bool,
    otherwise: impl FnOnce() -> Option<Finding>,
) -> Finding {
    let plain = |rule, what: &str| Finding::new(rule, seen.layer(), what.to_owned());
    let is_hip = seen.layer() == Layer::Hip;
    if is_sticky(ret) {
        let of = seen.device.map_or(String::new(), |device| format!(" of device {device}"));
        let mut what =
            format!("an error of work that was queued earlier, in the current context{of} or in one of the copy");
        if let Some([src, dst]) = objects.past.disabled_under_copy().filter(|_| !is_hip) {
            what += &format!(
                "; before it, peer access was disabled under an unfinished copy from device {src} to device {dst} (P2P-disable-under-copy)"
            );
        }
        return plain(Rule::ErrorEarlierWork, &what);
    }
    // Releases of HIP before 6 return invalid device on a machine without any.
    if is_of_the_machine(ret) || (is_hip && ret == Code::INVALID_DEVICE && seen.devices == Some(0)) {
        let is_ending = ret == Code::DEINITIALIZED;
        let what = if is_ending {
            "CUDA has shut down: the process is ending"
        } else {
            "no driver, no device, or not initialised"
        };
        return plain(Rule::ErrorNoDriver, what);
    }
    if let Some(finding) = of_capture(seen.request, seen.is_capture_lost, ret).or_else(|| of_access(seen, ret)) {
        return finding;
    }
    // The one that is documented to return this; else, of CUDA's, the first, which returned otherwise than documented.
    let is_documented = |finding: &Finding| {
        finding.code == Some(ret) || (is_hip && finding.rule == Rule::CopyHostMemory && ret == Code::INVALID_VALUE)
    };
    let by_code = wrong.iter().position(is_documented).unwrap_or(0);
    let explains = |finding: &Finding| is_documented(finding) || (!is_hip && fails(finding.rule));
    if let Some(finding) = wrong.into_iter().nth(by_code).filter(explains) {
        return finding;
    }
    if let (Code::INVALID_HANDLE | CONTEXT_IS_DESTROYED, Some(stream)) = (ret, seen.request.stream())
        && (ret == Code::INVALID_HANDLE || !is_context_gone())
    {
        let what = match objects.streams.find(stream) {
            Some(Known { device, state: State::Reset, .. }) => {
                format!("stream={stream:#x} was destroyed when device {device} was reset (cudaDeviceReset)")
            }
            _ => format!("stream={stream:#x} is not a stream, or no longer"),
        };
        return plain(Rule::CopyDestroyedStream, &what);
    }
    otherwise().unwrap_or_else(|| unexplained(seen.request.function, ret))
}

/// Explains an error of CUDA by what only its driver knows.
pub(super) fn by_driver(driver: &impl Driver, objects: &Objects, seen: &CallView<'_>, ret: Code) -> Option<Finding> {
    if seen.changes_access() && ret == Code::PEER_ACCESS_UNSUPPORTED {
        // Without a path in the hardware there is nothing to hide.
        let has_path = seen.pair.is_some_and(|[device, peer]| driver.can_access(device, peer) == Ok(true));
        return Some(unsupported(seen, has_path));
    }
    if let Some(what) = unreachable_mapping(driver, objects, seen) {
        return Some(Finding::new(Rule::CopyMappedNoAccess, seen.layer(), what));
    }
    Some(Finding::new(Rule::Copy3dHeight, seen.layer(), short_slice(seen)?).without_code())
}

/// The finding about access that is not to be had: p2pshim refuses it, or the hardware.
pub(super) fn unsupported(seen: &CallView<'_>, has_path: bool) -> Finding {
    let hidden = seen.standing.and_then(|standing| standing.hidden).filter(|_| has_path);
    if let Some((pair, hidden)) = seen.pair.zip(hidden) {
        return hidden.finding(seen.layer(), pair);
    }
    let [device, peer] = names(seen.pair);
    Finding::new(Rule::EnableUnsupported, seen.layer(), format!("{device} cannot access memory of {peer}"))
}

/// The finding about an error that nothing explains.
fn unexplained(function: Function, ret: Code) -> Finding {
    let (rule, what) = match documents(function, ret) {
        true if function.layer() != Layer::Hip && function.arguments().any(|name| name == "attr") => {
            (Rule::ErrorUnexplained, "the arguments look valid, apart from the attributes, which are not checked")
        }
        true => (Rule::ErrorUnexplained, "the arguments look valid"),
        false => (Rule::ErrorUndocumented, "the documentation of this function does not list this code"),
    };
    Finding::new(rule, function.layer(), what.to_owned())
}

/// How a capture explains an error.
fn of_capture(request: &Request<'_>, is_capture_lost: bool, ret: Code) -> Option<Finding> {
    let layer = request.function.layer();
    let plain = |rule, what: &str| Some(Finding::new(rule, layer, what.to_owned()));
    match (&request.asks, ret) {
        (Asks::Copy(copy), CAPTURE_INVALIDATED) => plain(Rule::CaptureLost, &lost(copy.stream.is_some())),
        (Asks::Copy(_), CAPTURE_UNSUPPORTED) if layer == Layer::Hip => {
            plain(Rule::CaptureCopy, "a stream is being captured")
        }
        (Asks::Copy(copy), CAPTURE_UNSUPPORTED) if copy.stream.is_some() && is_capture_lost => {
            plain(Rule::CaptureLost, &lost(true))
        }
        (Asks::Copy(copy), CAPTURE_UNSUPPORTED) if copy.stream.is_some() && copy.src_named != Named::Pointer => {
            plain(Rule::CaptureCopy, "the stream is being captured")
        }
        (Asks::Copy(_), CAPTURE_IMPLICIT) => {
            plain(Rule::CaptureDefaultStream, "the copy uses the legacy default stream")
        }
        (Asks::Access(Access::Enable { .. } | Access::Disable { .. }), CAPTURE_UNSUPPORTED | CAPTURE_INVALIDATED)
            if ret == CAPTURE_UNSUPPORTED || layer == Layer::Hip =>
        {
            plain(Rule::CaptureAccess, "a stream is being captured")
        }
        _ => None,
    }
}

/// The finding that a capture was lost before a copy, and by which call, if that was seen.
fn lost(has_stream: bool) -> String {
    let which = if has_stream { "the capture of the copy's stream" } else { "a capture that is under way" };
    let by = captures::lost_by().map(|(function, code)| {
        let name = codes::name(function.layer(), code).unwrap_or("an error");
        format!(": {} had returned {name} ({})", function.name(), code.0)
    });
    format!("{which} was lost before this copy{}", by.unwrap_or_default())
}

/// How the state of a pair's access explains an error.
fn of_access(seen: &CallView<'_>, ret: Code) -> Option<Finding> {
    let [device, peer] = names(seen.pair);
    let (rule, what) = match ret {
        _ if !seen.changes_access() => return None,
        Code::TOO_MANY_PEERS => (Rule::EnableLimit, limit(seen, [&device, &peer])),
        Code::PEER_ACCESS_ALREADY_ENABLED => {
            (Rule::EnableTwice, format!("access of {device} to {peer} is already enabled"))
        }
        Code::PEER_ACCESS_NOT_ENABLED => {
            (Rule::DisableNotEnabled, format!("access of {device} to {peer} is not enabled"))
        }
        _ => return None,
    };
    Some(Finding::new(rule, seen.layer(), what))
}

/// A device and its peer, as texts name them.
fn names(pair: Option<[i32; 2]>) -> [String; 2] {
    match pair {
        Some(devices) => devices.map(|device| format!("device {device}")),
        None => ["the current device".to_owned(), "this peer".to_owned()],
    }
}

/// The finding about a device that has as many peers as it can have: it names them, and says whether copies are direct all the same.
fn limit(seen: &CallView<'_>, [device, peer]: [&str; 2]) -> String {
    let (peers, is_reached) = seen.standing.map_or((&[][..], false), |it| (&it.peers[..], it.is_reached));
    let list: Vec<String> = peers.iter().map(ToString::to_string).collect();
    let has = match list.len() {
        0 => "as many peers as it can have".to_owned(),
        1 => format!("1 peer, device {}, which is its limit", list.concat()),
        count => format!("{count} peers, devices {}, which is its limit", list.join(", ")),
    };
    let path = match is_reached {
        true => format!("; {peer} has access to {device}, so that copies between the two are direct"),
        false => String::new(),
    };
    format!("{device} has {has}, and so no access to {peer}{path}")
}

/// Whether the context that is current is none any more.
pub(super) fn is_current_context_gone(driver: &impl Driver) -> bool {
    driver.current_context().is_some_and(|context| driver.context_id(context).is_none())
}

/// The end of a copy that was mapped by the program, and is not its own device's to use.
fn unreachable_mapping(driver: &impl Driver, objects: &Objects, seen: &CallView<'_>) -> Option<String> {
    let call = Sides::of(seen.request).filter(|call| !call.is_empty())?;
    let is_out_of_reach = |side: &&Side| {
        let (Operand::Device(address) | Operand::Any(address)) = side.given else { return false };
        let memory = driver.memory(address).filter(|memory| memory.holder == Holder::Mapped);
        memory.is_some_and(|memory| !driver.mapped_access(address, memory.device))
    };
    let side = call.sides.iter().find(is_out_of_reach)?;
    let (Operand::Device(address) | Operand::Any(address)) = side.given else { return None };
    Some(format!("{} is mapped memory that its own device cannot access{}", side.name, refused(objects, address)))
}

/// Which side's slices are shorter than the extent. With one slice the documentation does not mind, but the hardware does.
fn short_slice(seen: &CallView<'_>) -> Option<String> {
    let call = Sides::of(seen.request).filter(|call| call.is_3d && !call.is_empty())?;
    let [_, height, _] = call.extent;
    let is_short = |side: &&Side| matches!(side.given, Operand::Device(_) | Operand::Any(_)) && side.rows < height;
    let side = call.sides.iter().find(is_short)?;
    Some(format!("{} has slices of {} rows, fewer than the extent's height of {height}", side.name, side.rows))
}

/// Whether what the rule is about can be why a call fails.
fn fails(rule: Rule) -> bool {
    rule.text().severity == Severity::Error
}

/// Whether the code says that CUDA is not there, or not yet.
fn is_of_the_machine(code: Code) -> bool {
    /// Not initialised, shutting down, stub library, insufficient driver, unavailable and no device, system not ready, driver
    /// mismatches, MPS.
    const MACHINE: &[i32] = &[3, 4, 34, 35, 46, 100, 802, 803, 804, 805, 806, 807, 808, 809, 810];
    MACHINE.contains(&code.0)
}

/// Whether a context returns it for ever: work that it did has failed.
fn is_sticky(code: Code) -> bool {
    /// ECC, NVLink and contained errors; illegal address, launch time-out, assertion, hardware stack, illegal instruction,
    /// misaligned address, address space, program counter, launch failure, tensor memory.
    const STICKY: &[i32] = &[214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721];
    STICKY.contains(&code.0)
}
