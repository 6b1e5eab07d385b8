//! A call, and what it asks for.

use super::copy::{Memcpy, Named, Shape, is_array};
use crate::api::abi::{Value, is_between_devices};
use crate::api::{AccessKind, Effect, Function};

/// A call: parsed once, when it arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) function: Function,
    /// Its arguments in order, for the log; nothing is decided by them but what a state row means.
    pub(crate) arguments: &'a [Value],
    pub(crate) asks: Asks<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Asks<'a> {
    /// A copy between devices.
    Copy(Memcpy<'a>),
    /// Many copies at once on a stream: a batch, or the launch of a graph.
    Batch {
        stream: usize,
    },
    /// Peer access, or a query about it.
    Access(Access),
    Other,
}

/// A call's part in peer access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Lets the current context or device access the memory of a peer.
    Enable { peer: Named, flags: u32 },
    /// Undoes that.
    Disable { peer: Named },
    /// Asks what access of a device to a peer's memory there can be.
    Query {
        /// Where the result is written.
        output: *mut i32,
        /// Its length, in numbers of 4 bytes.
        count: usize,
        /// An attribute of `cudaDeviceP2PAttr`; none if only whether there can be access is asked.
        attribute: Option<i32>,
        /// The device that accesses.
        device: i32,
        /// The device whose memory it is.
        peer: i32,
    },
}

impl<'a> Request<'a> {
    /// Parses a call. `read` gives what the parameters of a 3D copy hold, by its first argument.
    #[inline(always)]
    pub(crate) fn new(function: Function, arguments: &'a [Value], read: impl FnOnce(Value) -> Shape<'a>) -> Self {
        let asks = match function.effect() {
            Effect::Copy(_) => copy(arguments, read).map(Asks::Copy),
            Effect::Access(kind) => access(kind, arguments).map(Asks::Access),
            Effect::Copies(_) => Some(Asks::Batch { stream: stream(arguments).unwrap_or(0) }),
            _ => None,
        };
        Self { function, arguments, asks: asks.unwrap_or(Asks::Other) }
    }

    /// Parses a call of a regular copy. `read` gives what the parameters of a 2D or 3D copy are, if they are to be looked at.
    #[inline(always)]
    pub(crate) fn regular(
        function: Function,
        arguments: &'a [Value],
        read: impl FnOnce(&[Value]) -> Option<Shape<'a>>,
    ) -> Self {
        let asks = regular_copy(arguments, read).map_or(Asks::Other, Asks::Copy);
        Self { function, arguments, asks }
    }

    #[inline(always)]
    pub(crate) fn copy(&self) -> Option<&Memcpy<'a>> {
        match &self.asks {
            Asks::Copy(copy) => Some(copy),
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn stream(&self) -> Option<usize> {
        match self.asks {
            Asks::Copy(copy) => copy.stream,
            Asks::Batch { stream } => Some(stream),
            _ => None,
        }
    }

    /// The addresses of a copy's source and destination, 0 for an array, and how many bytes are copied.
    #[inline(always)]
    pub(crate) fn copied(&self) -> ([u64; 2], u64) {
        match &self.asks {
            Asks::Copy(copy) => ([copy.src, copy.dst].map(|end| if is_array(end) { 0 } else { end }), copy.bytes),
            _ => ([0; 2], 0),
        }
    }

    #[inline(always)]
    pub(crate) fn access(&self) -> Option<Access> {
        match self.asks {
            Asks::Access(access) => Some(access),
            _ => None,
        }
    }

    /// The devices that its arguments name: of a copy source and destination, of access who accesses and whose memory it is.
    pub(crate) fn named_devices(&self) -> [Option<u8>; 2] {
        let named = match self.asks {
            Asks::Copy(copy) => [copy.src_named.ordinal(), copy.dst_named.ordinal()],
            Asks::Access(Access::Query { device, peer, .. }) => [Some(device), Some(peer)],
            Asks::Access(Access::Enable { peer, .. } | Access::Disable { peer }) => [None, peer.ordinal()],
            Asks::Batch { .. } | Asks::Other => [None; 2],
        };
        named.map(|ordinal| u8::try_from(ordinal?).ok().filter(|&device| device < u8::MAX))
    }
}

/// The stream that the arguments of a function end in.
#[inline(always)]
fn stream(arguments: &[Value]) -> Option<usize> {
    match arguments.last() {
        Some(&Value::Stream(stream)) => Some(stream),
        _ => None,
    }
}

/// The copy that the arguments of a function describe that names no devices; none if it says that the host takes part.
#[inline(always)]
fn regular_copy<'a>(arguments: &[Value], read: impl FnOnce(&[Value]) -> Option<Shape<'a>>) -> Option<Memcpy<'a>> {
    if let [.., Value::MemcpyKind(kind)] | [.., Value::MemcpyKind(kind), Value::Stream(_)] = *arguments
        && !is_between_devices(kind)
    {
        return None;
    }
    let stream = stream(arguments);
    if let [Value::Address(dst), Value::Address(src), Value::UInt(bytes), ..] = *arguments {
        let (src, dst) = (src as u64, dst as u64);
        let (src_named, dst_named) = (Named::Pointer, Named::Pointer);
        return Some(Memcpy { src, dst, src_named, dst_named, bytes, stream, shape: Shape::Linear });
    }
    match read(arguments)? {
        Shape::Runtime3D(p) => Some(Memcpy::of_runtime(p, stream).regular()),
        Shape::Driver3D(p) => Some(Memcpy::of_driver(p, stream).regular()),
        Shape::Unreadable(_) | Shape::Linear => None,
    }
}

/// The copy that the arguments of a function describe.
#[inline(always)]
fn copy<'a>(arguments: &[Value], read: impl FnOnce(Value) -> Shape<'a>) -> Option<Memcpy<'a>> {
    let (&parameters, _) = arguments.split_first()?;
    let stream = stream(arguments);
    let &[Value::Address(dst), dst_at, Value::Address(src), src_at, Value::UInt(bytes), ..] = arguments else {
        return Some(match read(parameters) {
            Shape::Runtime3D(p) => Memcpy::of_runtime(p, stream),
            Shape::Driver3D(p) => Memcpy::of_driver(p, stream),
            shape => {
                let named = match parameters {
                    Value::DriverPeer3D(_) => Named::Context(0),
                    _ => Named::Ordinal(-1),
                };
                Memcpy::unknown(shape, named, stream)
            }
        });
    };
    let (src_named, dst_named) = (named(src_at)?, named(dst_at)?);
    Some(Memcpy { src: src as u64, dst: dst as u64, src_named, dst_named, bytes, stream, shape: Shape::Linear })
}

/// A call's part in peer access, by its arguments.
#[inline(always)]
fn access(kind: AccessKind, arguments: &[Value]) -> Option<Access> {
    Some(match (kind, arguments) {
        (AccessKind::enable, &[peer, Value::UInt(flags)]) => Access::Enable { peer: named(peer)?, flags: flags as u32 },
        (AccessKind::disable, &[peer]) => Access::Disable { peer: named(peer)? },
        (AccessKind::query, &[Value::OutInt(output), Value::Ordinal(device), Value::Ordinal(peer)]) => {
            Access::Query { output, count: 1, attribute: None, device, peer }
        }
        (
            AccessKind::query,
            &[Value::OutInt(output), Value::P2pAttribute(attribute), Value::Ordinal(device), Value::Ordinal(peer)],
        ) => Access::Query { output, count: 1, attribute: Some(attribute), device, peer },
        (
            AccessKind::query_capabilities,
            &[Value::Address(output), _, Value::UInt(count), Value::Ordinal(device), Value::Ordinal(peer)],
        ) => Access::Query { output: output as *mut i32, count: count as usize, attribute: None, device, peer },
        _ => return None,
    })
}

#[inline(always)]
fn named(value: Value) -> Option<Named> {
    match value {
        Value::Ordinal(ordinal) => Some(Named::Ordinal(ordinal)),
        Value::Address(context) => Some(Named::Context(context)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_with_the_host_is_no_copy() {
        let copies = |bytes, kind| {
            let values = [Value::Address(8), Value::Address(16), Value::UInt(bytes), Value::MemcpyKind(kind)];
            Request::regular(Function::cudaMemcpy, &values, |_| None).copy().is_some()
        };
        assert!(copies(4, 3) && copies(4, 4), "cudaMemcpyDeviceToDevice, cudaMemcpyDefault");
        for kind in [0, 1, 2, 5, -1] {
            assert!(!copies(4, kind), "{kind}");
        }
    }
}
