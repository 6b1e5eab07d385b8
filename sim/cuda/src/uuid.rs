//! The names of devices that do not depend on which of them a program sees.

/// `CUuuid`.
pub(crate) type Uuid = [u8; 16];

/// The UUID of a device, or of its instance, by its number on the machine.
pub(crate) fn uuid(device: usize, kind: [u8; 3]) -> Uuid {
    let [a, b, c] = kind;
    let mut bytes = [b'p', b'2', b'p', b's', b'i', b'm', b' ', a, b, c, b' ', b'.', b'.', b'.', b'.', 0];
    if let Some(last) = bytes.last_mut() {
        *last = device as u8;
    }
    bytes
}

/// Whether `CUDA_VISIBLE_DEVICES` may name a device so: by its UUID, as `nvidia-smi -L` writes it, or the first part of it.
pub(crate) fn is_named(number: usize, name: &str, is_mig: bool) -> bool {
    let is = |kind: &str, bytes: [u8; 3]| {
        let hex = uuid(number, bytes).map(|byte| format!("{byte:02x}")).concat();
        let mut text = kind.to_owned();
        let mut rest = hex.as_str();
        for digits in [8, 4, 4, 4, 12] {
            let (part, others) = rest.split_at_checked(digits).unwrap_or((rest, ""));
            text = format!("{text}-{part}");
            rest = others;
        }
        name.len() > kind.len() && text.to_ascii_lowercase().starts_with(&name.to_ascii_lowercase())
    };
    is("GPU", *b"GPU") || is_mig && is("MIG", *b"MIG")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_named_by_the_whole_uuid_or_its_first_part() {
        const UUID: &str = "GPU-70327073-696d-2047-5055-202e2e2e2e01";
        assert!(
            is_named(1, UUID, false) && is_named(1, &UUID.to_ascii_lowercase(), false) && !is_named(0, UUID, false)
        );
        assert!(is_named(0, "GPU-7032", false) && !is_named(0, "GPU", false) && !is_named(0, "GPU-71", false));
        assert!(is_named(0, "MIG-7032", true) && is_named(0, "GPU-7032", true) && !is_named(0, "MIG-7032", false));
    }
}
