//! `P2PSHIM_PROBE=full`: a pair is answered for by the verdict that `p2pshim doctor` or `p2pshim run` has left in a file.
//!
//! In the program's process nothing of the kind can be tested: loading a kernel may wait for a device, and a kernel of the
//! program may be waiting for its host.

use p2pshim_host::verdicts::{self, Cache, Question};

use crate::os;

pub(crate) use p2pshim_host::verdicts::Answer;

/// The device that reaches, and the one that is reached.
#[derive(Clone, Debug)]
pub(crate) struct DevicePair {
    /// UUID of the device that reaches.
    pub(crate) src_uuid: [u8; 16],
    /// UUID of the device that is reached.
    pub(crate) dst_uuid: [u8; 16],
    /// Where the one is on the PCI bus, as `cuDeviceGetPCIBusId` writes it.
    pub(crate) src_bus_id: String,
    /// Where the other is.
    pub(crate) dst_bus_id: String,
    /// The driver's version, as CUDA counts.
    pub(crate) driver_version: i32,
}

/// The verdict that is kept on a pair, if there is one. Reads a small file.
pub(crate) fn verdict(pair: &DevicePair) -> Option<Answer> {
    os::undisturbed(|| {
        // Where a program has more rights than its user, its environment, and so the folder, are the user's choice.
        if os::is_secure_execution() {
            return None;
        }
        let variable = |name: &str| os::environment(&format!("{name}=")).map(|(_, value)| value).next();
        let cache = Cache::of(variable("XDG_CACHE_HOME"), variable("HOME"), os::user_id())?;
        cache.get(&verdicts::key(&pair.question())?)
    })
}

impl DevicePair {
    fn question(&self) -> Question {
        Question {
            from_uuid: uuid(self.src_uuid),
            from_bus_id: self.src_bus_id.clone(),
            to_uuid: uuid(self.dst_uuid),
            to_bus_id: self.dst_bus_id.clone(),
            driver_version: self.driver_version,
        }
    }
}

/// A UUID as `CUDA_VISIBLE_DEVICES` takes it.
fn uuid(bytes: [u8; 16]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut text = "GPU".to_owned();
    let mut rest = digits.as_str();
    for length in [8, 4, 4, 4, 12] {
        let (group, others) = rest.split_at_checked(length).unwrap_or((rest, ""));
        text.extend(["-", group]);
        rest = others;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> DevicePair {
        DevicePair {
            src_uuid: *b"\x89\x32\xf9\x37\xd7\x2c\x41\x06\xc1\x2f\x20\xbd\x9f\xae\xd9\xf6",
            dst_uuid: [1; 16],
            src_bus_id: "0000:01:00.0".to_owned(),
            dst_bus_id: "0000:02:00.0".to_owned(),
            driver_version: 13000,
        }
    }

    #[test]
    fn question_names_devices_as_the_command_does() {
        let question = pair().question();
        assert_eq!(question.from_uuid, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
        assert_eq!(question.to_uuid, "GPU-01010101-0101-0101-0101-010101010101");
    }

    #[test]
    fn verdict_on_devices_that_nobody_has_is_none() {
        assert_eq!(verdict(&DevicePair { src_uuid: [0xfe; 16], ..pair() }), None);
    }
}
