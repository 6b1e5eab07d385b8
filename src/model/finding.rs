//! A fault that a rule finds in a call.

use super::rules::Rule;
use crate::api::abi::Code;
use crate::api::{Function, Layer};

/// Something that a rule says of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) rule: Rule,
    /// The code that the documentation gives for it, if it gives one.
    pub(crate) code: Option<Code>,
    /// The parameter, its value, and what is wrong with it.
    pub(crate) what: String,
    /// The size of the copy, if that is negative as a signed number.
    pub(crate) size: Option<i64>,
}

impl Finding {
    /// With the code that the rule has for the layer.
    pub(crate) fn new(rule: Rule, layer: Layer, what: String) -> Self {
        Self { rule, code: rule.code(layer), what, size: None }
    }

    /// The finding, where the documentation gives no code.
    pub(crate) fn without_code(self) -> Self {
        Self { code: None, ..self }
    }
}

/// Why p2pshim refuses the program peer access that the hardware offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// `P2PSHIM_ACCESS=off`.
    Off,
    /// `P2PSHIM_DENY`.
    Denied,
    Broken,
    /// Until it is judged again.
    Late,
}

impl Hidden {
    /// The text for a program that is refused a device's access to another.
    pub(crate) fn finding(self, layer: Layer, [device, peer]: [i32; 2]) -> Finding {
        let (rule, why) = match self {
            Self::Off => (Rule::EnableDenied, "P2PSHIM_ACCESS=off"),
            Self::Denied => (Rule::EnableDenied, "P2PSHIM_DENY names the pair"),
            Self::Broken => (Rule::EnableBroken, "data does not arrive on the path"),
            Self::Late => {
                (Rule::EnableBroken, "a copy on the path did not end in time; the path is verified again later")
            }
        };
        Finding::new(rule, layer, format!("p2pshim refuses device {device} access to device {peer}: {why}"))
    }
}

/// Whether the documentation of a function lists a code.
pub(crate) fn documents(function: Function, code: Code) -> bool {
    documented(function).contains(&code.0)
}

/// The codes that the documentation of CUDA 13.0, or of HIP, lists for a function, besides success and errors of earlier work.
pub(crate) fn documented(function: Function) -> &'static [i32] {
    match (function.layer(), function.base()) {
        // Codes that any call of the runtime returns if it is the first, and so initialises it: 3, 35, 100.
        (Layer::Runtime, "cudaMemcpyPeer" | "cudaMemcpyPeerAsync") => &[1, 101, 3, 35, 100],
        (Layer::Runtime, "cudaMemcpy3DPeer" | "cudaMemcpy3DPeerAsync") => &[1, 12, 101, 3, 35, 100],
        (Layer::Runtime, "cudaMemcpy" | "cudaMemcpyAsync") => &[1, 21, 3, 35, 100],
        (Layer::Runtime, "cudaMemcpy2D" | "cudaMemcpy2DAsync" | "cudaMemcpy3D" | "cudaMemcpy3DAsync") => {
            &[1, 12, 21, 3, 35, 100]
        }
        (Layer::Runtime, "cudaDeviceCanAccessPeer") => &[101, 3, 35, 100],
        (Layer::Runtime, "cudaDeviceEnablePeerAccess") => &[101, 704, 1, 3, 35, 100],
        (Layer::Runtime, "cudaDeviceDisablePeerAccess") => &[705, 101, 3, 35, 100],
        (Layer::Runtime, "cudaDeviceGetP2PAttribute") => &[101, 1, 3, 35, 100],
        // Not initialised, and shutting down: 3, 4.
        (Layer::Driver, "cuMemcpyPeerAsync") => &[1, 201, 400, 3, 4],
        (Layer::Driver, "cuMemcpyPeer" | "cuMemcpy3DPeer" | "cuMemcpy3DPeerAsync") => &[1, 201, 3, 4],
        (Layer::Driver, "cuMemcpy" | "cuMemcpyDtoD" | "cuMemcpy2D" | "cuMemcpy2DUnaligned" | "cuMemcpy3D") => {
            &[1, 201, 3, 4]
        }
        (Layer::Driver, "cuMemcpyAsync" | "cuMemcpyDtoDAsync" | "cuMemcpy2DAsync" | "cuMemcpy3DAsync")
        | (Layer::Driver, "cuMemcpyWithAttributesAsync") => &[1, 201, 400, 3, 4],
        (Layer::Driver, "cuCtxEnablePeerAccess") => &[217, 704, 711, 201, 1, 3, 4],
        (Layer::Driver, "cuCtxDisablePeerAccess") => &[705, 201, 3, 4],
        (Layer::Driver, "cuDeviceCanAccessPeer") => &[101, 3, 4],
        (Layer::Driver, "cuDeviceGetP2PAttribute") => &[101, 1, 3, 4],
        // Its pages list nothing for a machine without devices (100), which each call returns, or not initialised (3).
        (Layer::Hip, "hipMemcpyPeer" | "hipMemcpyPeerAsync") => &[1, 101, 3, 100],
        (
            Layer::Hip,
            "hipMemcpy" | "hipMemcpyAsync" | "hipMemcpyWithStream" | "hipMemcpyDtoD" | "hipMemcpyDtoDAsync",
        ) => &[1, 3, 100],
        (Layer::Hip, "hipMemcpy2D" | "hipMemcpy2DAsync" | "hipMemcpy3D" | "hipMemcpy3DAsync") => {
            &[1, 12, 17, 21, 3, 100]
        }
        (Layer::Hip, "hipMemcpy3DPeer" | "hipMemcpy3DPeerAsync") => &[1, 12, 101, 3, 100],
        // Of NULL its page says nothing.
        (Layer::Hip, "hipDeviceCanAccessPeer") => &[101, 3, 100],
        (Layer::Hip, "hipDeviceEnablePeerAccess") => &[101, 1, 704, 3, 100],
        // Of devices that are none, or no peers, neither.
        (Layer::Hip, "hipDeviceDisablePeerAccess") => &[705, 3, 100],
        (Layer::Hip, "hipDeviceGetP2PAttribute") => &[101, 1, 3, 100],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{AccessKind, Effect};

    #[test]
    fn documented_every_function_that_rules_are_about() {
        for &function in Function::ALL {
            let has_rules = match function.effect() {
                Effect::Copy(_) => true,
                Effect::Access(kind) => kind != AccessKind::query_capabilities,
                Effect::Traced
                | Effect::Copies(_)
                | Effect::Host(_)
                | Effect::State(_)
                | Effect::Lookup
                | Effect::Order(_) => false,
            };
            assert_eq!(!documented(function).is_empty(), has_rules, "{}", function.name());
        }
    }
}
