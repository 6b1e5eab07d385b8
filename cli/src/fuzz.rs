//! Damaged inputs for the readers of the command.

#[path = "../../host/src/fuzz/inputs.rs"]
mod inputs;

use serde_json::{Value, json};

pub(crate) use inputs::{NUMBERS, Random, each, is_plain};

/// A value of JSON that nobody expects there.
fn odd(random: &mut Random) -> Value {
    let all = [
        json!(null),
        json!(-1),
        json!(0),
        json!(1e300),
        json!(u64::MAX),
        json!(i64::MAX),
        json!("\u{1b}[2J\n"),
        json!([]),
        json!({}),
        json!(true),
        json!("x".repeat(100_000)),
    ];
    all[random.below(all.len())].clone()
}

/// Puts something in the place of a value, which is anywhere.
pub(crate) fn put_odd(value: &mut Value, random: &mut Random) {
    let count = value.as_array().map_or(0, Vec::len) + value.as_object().map_or(0, serde_json::Map::len);
    if count == 0 || random.below(4) == 0 {
        *value = odd(random);
        return;
    }
    let at = random.below(count);
    match value {
        Value::Array(all) => put_odd(&mut all[at], random),
        Value::Object(all) => all.values_mut().nth(at).into_iter().for_each(|value| put_odd(value, random)),
        _ => {}
    }
}
