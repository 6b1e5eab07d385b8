//! Calls of the program that read or change rights to memory of pools and mapped memory.

use super::peers::end_taking;
use super::thread::TAKES;
use super::{mode, read, thread};
use crate::api::abi::Code;
use crate::policy::ACCESS;
use crate::policy::access::Grants;
use crate::real::driver::{self, AccessDesc, Location, PoolProps, RealDriver};

/// Rights of memory are about to be set. A code, if that must not be done: the program gets it.
#[cold]
pub(super) fn before_grants(of: Grants, grants: *const AccessDesc, count: u64) -> Option<Code> {
    mode::unseen(|| {
        let grants = read::grants(grants, count)?;
        let devices: Vec<i32> = grants.iter().filter_map(AccessDesc::device).collect();
        if ACCESS.may_hide()
            && let Some(refused) = ACCESS.refused(&RealDriver, of, &devices)
        {
            return Some(refused);
        }
        let Grants::OfPool(pool) = of else { return None };
        if !grants.iter().any(AccessDesc::takes_away) {
            return None;
        }
        // First, since who gives a right says so under the lock and then looks here.
        ACCESS.disablings.begins();
        let stays = |grant: &AccessDesc| {
            grant.takes_away() && grant.device().is_some_and(|device| ACCESS.keeps_right(pool, device))
        };
        if grants.iter().any(stays) && grants.len() as u64 == count {
            let kept = |grant: &AccessDesc| if stays(grant) { grant.giving() } else { *grant };
            let ret = driver::set_rights(pool, &grants.iter().map(kept).collect::<Vec<_>>());
            ACCESS.disablings.mark_over();
            return Some(ret);
        }
        thread::current().set_unfinished(TAKES, true);
        None
    })
}

#[cold]
pub(super) fn on_pool_set_access(pool: usize, grants: *const AccessDesc, count: u64, ret: Code) {
    end_taking();
    if ret == Code::SUCCESS {
        mode::unseen(|| {
            let grants = read::grants(grants, count).unwrap_or_default();
            let rights = grants.iter().filter_map(|grant| Some((grant.device()?, !grant.takes_away())));
            ACCESS.on_pool_access_set(pool, rights);
        });
    }
}

/// Writes over what a query tells of a right that only we gave.
#[cold]
pub(super) fn on_pool_get_access(flags: *mut u32, pool: usize, location: *const Location) {
    mode::unseen(|| {
        if read::device_at(location).is_some_and(|device| ACCESS.has_granted(pool, device)) {
            // SAFETY: the real function reports success, so it has just written the flags there.
            unsafe { flags.write(0) };
        }
    });
}

/// A pool was created, or imported from another process, which has no properties here.
#[cold]
pub(super) fn on_pool_create(out: usize, properties: Option<*const PoolProps>) {
    mode::unseen(|| {
        if let Some(pool) = read::handle_at(out) {
            ACCESS.on_pool_created(&RealDriver, pool, properties.and_then(read::device_of_pool));
        }
    });
}
