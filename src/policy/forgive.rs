//! `P2PSHIM_FORGIVE`: success in place of the code of a call that had nothing to do.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::api::abi::Code;
use crate::config::Forgiven;
use crate::model::Access;

static ENABLED: AtomicBool = AtomicBool::new(false);
static NOT_ENABLED: AtomicBool = AtomicBool::new(false);

pub(super) fn configure(forgiven: Forgiven) {
    ENABLED.store(forgiven.enabled, Relaxed);
    NOT_ENABLED.store(forgiven.not_enabled, Relaxed);
}

/// Whether the program gets success for this code.
pub(crate) fn forgives(access: Option<Access>, ret: Code) -> bool {
    match (access, ret) {
        (Some(Access::Enable { .. }), Code::PEER_ACCESS_ALREADY_ENABLED) => ENABLED.load(Relaxed),
        (Some(Access::Disable { .. }), Code::PEER_ACCESS_NOT_ENABLED) => NOT_ENABLED.load(Relaxed),
        _ => false,
    }
}
