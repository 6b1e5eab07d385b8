//! The functions, options and rules as a table for the command and for Python: packaging/python/p2pshim/tables.json. With
//! `P2PSHIM_UPDATE=1` (`make header`) it is written anew.

use p2pshim_host::config::Variable;
use serde_json::{Value, json};

use super::Rule;
use crate::api::{Effect, Function, Layer, codes};

fn function(function: Function) -> Value {
    let kind = match function.effect() {
        Effect::State(_) | Effect::Host(_) => "state",
        Effect::Lookup => "lookup",
        _ => "traced",
    };
    let parameters: Vec<_> = function.arguments().collect();
    let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
    json!({
        "name": function.name(), "layer": function.layer().name(), "kind": kind, "parameters": parameters,
        "since": function.since(),
    })
}

fn option(option: Variable) -> Value {
    let [values, help, _] = option.texts();
    json!({"name": option.name(), "values": values, "default_value": option.default(), "help": help})
}

fn rule(rule: Rule) -> Value {
    let text = rule.text();
    let name = |layer| rule.code(layer).and_then(|code| codes::name(layer, code)).unwrap_or_default();
    json!({
        "id": rule.id(), "severity": text.severity.name(), "functions": text.functions,
        "documentation": text.documentation, "hardware": text.hardware, "why": text.why, "remedy": text.remedy,
        "runtime_code": text.code(Layer::Runtime).0, "driver_code": text.code(Layer::Driver).0,
        "runtime_code_name": name(Layer::Runtime), "driver_code_name": name(Layer::Driver),
    })
}

#[test]
fn tables_are_what_the_sources_say() {
    let apis = Function::ALL.iter().copied().map(function).collect();
    let options = Variable::ALL.iter().copied().map(option).collect();
    let rules = Rule::ALL.iter().copied().map(rule).collect();
    let tables = [("apis", apis), ("options", options), ("rules", rules)].map(|(name, rows): (_, Vec<Value>)| {
        let rows: Vec<_> = rows.iter().map(Value::to_string).collect();
        format!("{name:?}: [\n{}\n]", rows.join(",\n"))
    });
    let generated = format!("{{\n{}\n}}\n", tables.join(",\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/python/p2pshim/tables.json");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    if std::env::var_os("P2PSHIM_UPDATE").is_some() && committed != generated {
        std::fs::write(path, generated).unwrap();
    } else {
        assert!(committed == generated, "{path} is out of date; run `make header` and commit it");
    }
}
