//! Schemas of JSON: types say what it has, and the comments of their fields what that means.

use std::fs;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// Compares a file of docs/schema/ with a type; `P2PSHIM_UPDATE=1` writes it anew.
pub(crate) fn compare<T: JsonSchema>(name: &str) {
    let plain = |schema: &mut Schema| {
        // Names of Rust's types.
        schema.remove("format");
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = text.replace('\n', " ");
        }
    };
    let settings = SchemaSettings::draft07().for_serialize().with_transform(RecursiveTransform(plain));
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let file = format!("{}/../docs/schema/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("P2PSHIM_UPDATE").is_some() {
        fs::write(&file, &schema).unwrap();
    }
    assert!(fs::read_to_string(&file).unwrap() == schema, "{file} is out of date: P2PSHIM_UPDATE=1 writes it anew");
}
