//! Names of the codes that functions return.

use std::sync::OnceLock;

use p2pshim_host::codes::{NAMES, rows, since_10_1, until_10_0};

use super::{Layer, abi::Code};

/// The numbers in which a call returns codes.
///
/// Inside the shim, codes have the usual numbers; what the program, the log and the trace get has the call's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// Those of the layer. The runtime's have been the driver's since CUDA 10.1.
    Usual,
    /// The runtime's own until 10.0.
    Until10_0,
}

impl Numbering {
    /// A number that was no code of the runtime's is increased by this.
    const NONE: i32 = 100_000;

    /// The code that the program gets, in the usual numbers.
    pub(crate) fn usual(self, Code(given): Code) -> Code {
        match self {
            Self::Usual => Code(given),
            Self::Until10_0 => Code(since_10_1(given).unwrap_or(given.saturating_add(Self::NONE))),
        }
    }

    /// A code as the program gets it.
    pub(crate) fn given(self, Code(code): Code) -> Code {
        match self {
            Self::Usual => Code(code),
            Self::Until10_0 if code >= Self::NONE => Code(code - Self::NONE),
            // Of a code that the runtime does not know, it makes an unknown error.
            Self::Until10_0 => Code(until_10_0(code).unwrap_or(UNKNOWN_UNTIL_10_0)),
        }
    }
}

/// `cudaErrorUnknown` until 10.0.
const UNKNOWN_UNTIL_10_0: i32 = 30;

/// The symbolic name of a code, if the layer has one.
pub(crate) fn name(layer: Layer, code: Code) -> Option<&'static str> {
    of_layer(layer, rows().find(|&(number, _)| number == code.0)?.1)
}

pub(crate) fn all(layer: Layer) -> impl Iterator<Item = (Code, &'static str)> {
    rows().filter_map(move |(code, names)| Some((Code(code), of_layer(layer, names)?)))
}

fn of_layer(layer: Layer, [runtime, driver, hip]: [Option<&'static str>; 3]) -> Option<&'static str> {
    match layer {
        Layer::Runtime => runtime,
        Layer::Driver => driver,
        Layer::Hip => hip,
        Layer::Nvml => None,
    }
}

/// The name of a code, with a terminating NUL.
pub(crate) fn c_name(layer: Layer, code: Code) -> Option<&'static str> {
    /// The table, in which each name ends in NUL.
    static ENDED: OnceLock<String> = OnceLock::new();
    let name = name(layer, code)?;
    let at = (name.as_ptr() as usize).checked_sub(NAMES.as_ptr() as usize)?;
    ENDED.get_or_init(|| NAMES.replace([' ', '\n'], "\0")).get(at..=at + name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbering_there_and_back() {
        for given in (0..1_000).map(Code) {
            for numbering in [Numbering::Usual, Numbering::Until10_0] {
                assert_eq!(numbering.given(numbering.usual(given)), given);
            }
        }
        assert_eq!(
            name(Layer::Runtime, Numbering::Until10_0.usual(Code(50))),
            Some("cudaErrorPeerAccessAlreadyEnabled")
        );
        assert_eq!(name(Layer::Runtime, Numbering::Until10_0.usual(Code(704))), None);
    }

    #[test]
    fn c_name_is_the_name_and_ends() {
        assert_eq!(c_name(Layer::Runtime, Code(704)), Some("cudaErrorPeerAccessAlreadyEnabled\0"));
        assert_eq!(c_name(Layer::Driver, Code(999)), Some("CUDA_ERROR_UNKNOWN\0"));
        assert_eq!(c_name(Layer::Driver, Code(12)), None);
    }

    #[test]
    fn name_each_layer_has_its_own() {
        assert_eq!(name(Layer::Runtime, Code::SUCCESS), Some("cudaSuccess"));
        assert_eq!(name(Layer::Driver, Code::SUCCESS), Some("CUDA_SUCCESS"));
        assert_eq!(name(Layer::Runtime, Code(704)), Some("cudaErrorPeerAccessAlreadyEnabled"));
        assert_eq!(name(Layer::Driver, Code(705)), Some("CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"));
        assert_eq!(name(Layer::Hip, Code::SUCCESS), Some("hipSuccess"));
        assert_eq!(name(Layer::Hip, Code(704)), Some("hipErrorPeerAccessAlreadyEnabled"));
        assert_eq!(name(Layer::Hip, Code(1052)), Some("hipErrorRuntimeMemory"));
        assert_eq!(name(Layer::Runtime, Code(1052)), None);
        assert_eq!(name(Layer::Hip, Code(711)), None);
        assert_eq!(name(Layer::Driver, Code(12)), None);
        assert_eq!(name(Layer::Runtime, Code(-1)), None);
        assert_eq!(
            name(Layer::Runtime, Code::SHARED_OBJECT_SYMBOL_NOT_FOUND),
            Some("cudaErrorSharedObjectSymbolNotFound")
        );
    }
}
