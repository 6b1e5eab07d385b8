//! Memory with rights of its own: of pools, and mapped by the program.

use super::call::{CallView, Side};
use crate::api::{Layer, codes};
use crate::model::{Finding, Named, Rule};
use crate::objects::{Objects, captures};
use crate::policy::driver::{Driver, Holder, Memory};

/// Says that the program has asked for access to what is mapped there, and did not get it.
pub(super) fn refused(objects: &Objects, address: u64) -> String {
    let Some(code) = objects.past.refused_access(address) else { return String::new() };
    let name = codes::name(Layer::Driver, code).unwrap_or("an error");
    format!(": cuMemSetAccess returned {name} ({}) for it", code.0)
}

/// The fault of the rights to one end of a copy, if there is one. Read access alone will do for a source, so only a copy that
/// failed tells.
pub(super) fn check(
    driver: &impl Driver,
    objects: &Objects,
    seen: &CallView<'_>,
    side: &Side,
    (address, memory): (u64, Memory),
) -> Option<Finding> {
    let (layer, name, Memory { holder, device, .. }) = (seen.layer(), side.name, memory);
    if holder == Holder::Mapped && !driver.mapped_access(address, device) {
        let what = format!(
            "{name}={address:#x} is mapped, but its device {device} cannot access it{}",
            refused(objects, address)
        );
        return Some(Finding::new(Rule::CopyMappedNoAccess, layer, what));
    }
    let is_regular = seen.request.copy().is_some_and(|copy| copy.src_named == Named::Pointer);
    let current = driver.current_context().and_then(|context| driver.device_of_context(context));
    let current = current.filter(|&current| current != device && is_regular && layer != Layer::Hip)?;
    let (what, has_access) = match holder {
        // To ask about a pool would end a capture.
        Holder::Pool(_) if captures::may_be_under_way() => return None,
        Holder::Pool(pool) => ("memory of a pool", driver.pool_access(pool, current)),
        Holder::Mapped => ("mapped memory", driver.mapped_access(address, current)),
        _ => return None,
    };
    let what = format!(
        "{name}={address:#x} is {what} of device {device}, to which the current device {current} has no access{}",
        refused(objects, address)
    );
    (!has_access).then(|| Finding::new(Rule::CopyNoRights, layer, what))
}
