//! Sizes as people write them.

/// Reads a number of bytes, or a number with a unit. As with GNU's tools K, M, G and T are powers of 1024, as are KiB or Ki, and so on; kB, MB,
/// GB and TB are powers of 1000.
///
/// # Errors
/// A sentence that says what may be written.
pub fn size(text: &str) -> Result<u64, String> {
    parse(text.trim()).ok_or_else(|| {
        "no size; write bytes, such as 500M (K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024, kB, MB, GB, TB of 1000).".to_owned()
    })
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|last: char| !last.is_ascii_digit());
    let unit = text.strip_prefix(digits)?.trim().to_ascii_uppercase();
    let (letter, base) = match (unit.strip_suffix("IB").or(unit.strip_suffix('I')), unit.strip_suffix('B')) {
        (Some(letter), _) => (letter, 1024u64),
        (None, Some(letter)) => (letter, 1000),
        (None, None) => (&*unit, 1024),
    };
    let power = match letter {
        "" if !unit.contains('I') => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(base.pow(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_each_unit_is_one_number() {
        for (text, bytes) in [
            ("4096", 4096),
            ("10 B", 10),
            ("10M", 10 << 20),
            ("10MiB", 10 << 20),
            ("10MB", 10_000_000),
            ("10 mb", 10_000_000),
            ("1k", 1 << 10),
            ("1kB", 1000),
            ("2 GiB", 2 << 30),
            ("3T", 3 << 40),
            ("4Gi", 4 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "M", "-1", "1.5G", "5X", "5iB", "5 M x", "99999999T"] {
            assert!(size(wrong).unwrap_err().starts_with("no size; write bytes, such as 500M"), "{wrong}");
        }
    }
}
