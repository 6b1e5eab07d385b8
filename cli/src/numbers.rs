//! Numbers as arguments: what is none is told what may be written.

use std::ops::RangeInclusive;

/// Takes whole numbers of a range.
pub(crate) fn whole<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match (range.start(), range.end()) {
            (first, &u64::MAX) => format!("write a whole number from {first} on"),
            (first, last) => format!("write a whole number from {first} to {last}"),
        })
    }
}

/// Takes two GPUs, and whether both ways are meant.
pub(crate) fn pair(text: &str) -> Result<([u32; 2], bool), String> {
    let wrong = || format!("{text:?} is not a pair of GPUs such as 0>1 or 0-1 (quote the >)");
    let both_ways = !text.contains('>');
    let (src, dst) = text.split_once(if both_ways { '-' } else { '>' }).ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse().map_err(|_| wrong());
    Ok(([number(src)?, number(dst)?], both_ways))
}

/// Takes seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0);
    seconds.ok_or_else(|| "write seconds, such as 0.25 or 3".to_owned())
}

/// Takes percent.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse().ok().filter(|it: &f64| it.is_finite() && *it >= 0.0);
    percent.ok_or_else(|| "write percent, such as 5 or 12.5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_only_what_is_in_the_range() {
        let devices = whole::<u8>(0..=64);
        assert_eq!((devices("0"), devices("64")), (Ok(0), Ok(64)));
        for wrong in ["", "x", "-1", "65", "1.5", "99999999999999999999999"] {
            assert_eq!(devices(wrong), Err("write a whole number from 0 to 64".to_owned()), "{wrong}");
        }
        assert_eq!(whole::<u64>(1..=u64::MAX)("0"), Err("write a whole number from 1 on".to_owned()));
    }

    #[test]
    fn seconds_only_numbers() {
        assert_eq!(seconds("0.25"), Ok(0.25));
        for wrong in ["", "1s", "-1", "nan", "inf"] {
            assert_eq!(seconds(wrong), Err("write seconds, such as 0.25 or 3".to_owned()), "{wrong}");
        }
    }
}
