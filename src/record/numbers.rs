//! The meaning of the numbers in a trace.

use p2pshim_host::codes::until_10_0;
use p2pshim_trace::{NoteKind, UNTIL_10_0};

use crate::api::abi::Code;
use crate::api::codes::Numbering;
use crate::api::{Function, Layer, codes};
use crate::model::Rule;

/// A code as a record holds it.
#[inline(always)]
pub(crate) fn result(numbering: Numbering, code: Code) -> i32 {
    let given = numbering.given(code).0;
    match numbering {
        Numbering::Usual => given,
        Numbering::Until10_0 => given | UNTIL_10_0,
    }
}

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
            let strings = [layer.name().as_bytes(), name.as_bytes()];
            note(NoteKind::Code, code.0.cast_unsigned(), &strings);
            let old = until_10_0(code.0).filter(|_| layer == Layer::Runtime);
            if let Some(old) = old {
                note(NoteKind::Code, (old | UNTIL_10_0).cast_unsigned(), &strings);
            }
        }
    }
}
