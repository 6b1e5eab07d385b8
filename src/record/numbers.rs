//! The meaning of the numbers in a trace.

use p2pshim_trace::NoteKind;

use crate::api::{Function, Layer, codes};
use crate::model::Rule;

/// Has it noted what numbers in records mean.
pub(super) fn name(note: impl Fn(NoteKind, u32, &[&[u8]])) {
    for &function in Function::ALL.iter().filter(|function| function.effect().may_be_in_traces()) {
        let strings = [function.layer().name().as_bytes(), function.name().as_bytes()];
        note(NoteKind::Function, function as u32, &strings);
    }
    for &rule in Rule::ALL {
        note(NoteKind::Rule, rule as u32, &[rule.id().as_bytes(), rule.text().severity.name().as_bytes()]);
    }
    for layer in Layer::ALL {
        for (code, name) in codes::all(layer) {
            note(NoteKind::Code, code.0.cast_unsigned(), &[layer.name().as_bytes(), name.as_bytes()]);
        }
    }
}
