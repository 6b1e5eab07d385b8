//! Figures of the page in words: those of the text, so that both say the same. The page only shows them.
//!
//! Beside each `host_ns` comes `host_text`, beside `gb_per_s` a `rate_text`, also of all copies of a pair, and beside `seconds` a
//! `seconds_text`.

use serde_json::{Map, Value};

use super::term;

/// Adds them to a report, as `p2pshim report --json` prints it.
pub(super) fn add(json: &mut Value) {
    match json {
        Value::Array(all) => all.iter_mut().for_each(add),
        Value::Object(object) => {
            object.values_mut().for_each(add);
            let times = object.get("host_ns").filter(|times| times.is_object()).map(times);
            let rate = rate_of(object);
            let seconds = object.get("seconds").and_then(Value::as_f64).map(term::seconds);
            for (name, text) in [
                ("host_text", times),
                ("rate_text", rate.map(Value::String)),
                ("seconds_text", seconds.map(Value::String)),
            ] {
                text.into_iter().for_each(|text| drop(object.insert(name.to_owned(), text)));
            }
        }
        _ => {}
    }
}

/// Host times; those of the middle are right to 3 % only.
fn times(host_ns: &Value) -> Value {
    let time = |name: &str| host_ns.get(name).and_then(Value::as_u64);
    let max = time("max");
    let rough = |name: &str| roughly(time(name), max);
    let whole = |name: &str| time(name).map(term::duration);
    let texts = [("p50", rough("p50")), ("p99", rough("p99")), ("max", whole("max")), ("total", whole("total"))];
    texts.into_iter().map(|(name, text)| (name.to_owned(), Value::from(text))).collect::<Map<_, _>>().into()
}

/// The rate of copies: it is there, or follows from that of the paths which they took.
fn rate_of(copies: &Map<String, Value>) -> Option<String> {
    let number = |of: &Map<String, Value>, name: &str| of.get(name).and_then(Value::as_u64).unwrap_or_default();
    let paths = copies.get("paths").and_then(Value::as_array);
    let sum = |name: &str| match paths {
        Some(paths) => {
            paths.iter().filter_map(Value::as_object).map(|path| number(path, name)).fold(0, u64::saturating_add)
        }
        None => number(copies, name),
    };
    let [gb_per_s, off] = ["gb_per_s", "gb_per_s_off"].map(|name| copies.get(name).and_then(Value::as_f64));
    gb_per_s.map(|gb_per_s| format!("{} GB/s", rate(gb_per_s, off, sum("device_calls") < sum("calls"))))
}

/// A rate; if not all that it is of was measured with a sign, and with what it may be off by.
pub(super) fn rate(gb_per_s: f64, off: Option<f64>, is_of_samples: bool) -> String {
    let digits: usize = if gb_per_s < 0.1 { 4 } else { 1 };
    match off {
        _ if !is_of_samples => format!("{gb_per_s:.digits$}"),
        // Of what is shown the last digit is not sure.
        Some(off) => format!("~{gb_per_s:.digits$} \u{b1}{:.digits$}", off.max(0.1f64.powi(digits as i32))),
        None => format!("~{gb_per_s:.digits$}"),
    }
}

/// A time of a histogram, the longest of which is known.
pub(super) fn roughly(time: Option<u64>, max: Option<u64>) -> Option<String> {
    time.zip(max).map(|(time, max)| term::rough(time, max))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn add_figures_stand_beside_their_numbers() {
        let host_ns = json!({"p50": 1_331, "p99": 65_123, "max": 168_400, "total": 2_000_000});
        let path = json!({"gb_per_s": 391.29999, "gb_per_s_off": 7.5, "device_calls": 26, "calls": 142, "device_bytes": 3912, "device_ns": 10});
        let mut json = json!({
            "pairs": [{"paths": [path], "gb_per_s": 391.2, "host_ns": host_ns}],
            "functions": [{"host_ns": {"p50": null, "p99": null, "max": null, "total": 0}}],
            "lost": {"seconds": 0.0225},
        });
        add(&mut json);
        let host_text = json!({"p50": "1.3us", "p99": "65us", "max": "168.4us", "total": "2.0ms"});
        assert_eq!(json["pairs"][0]["host_text"], host_text);
        assert_eq!(json["pairs"][0]["host_ns"], host_ns);
        assert_eq!(json["pairs"][0]["rate_text"], "~391.2 GB/s");
        assert_eq!(json["pairs"][0]["paths"][0]["rate_text"], "~391.3 \u{b1}7.5 GB/s");
        assert_eq!(json["functions"][0]["host_text"], json!({"p50": null, "p99": null, "max": null, "total": "0ns"}));
        assert_eq!(json["lost"]["seconds_text"], "22.5 ms");
    }
}
