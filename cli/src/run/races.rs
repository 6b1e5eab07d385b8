//! `--order=enforce --races RUN`: the places of an earlier run's races, for the shim.

use std::path::Path;

use p2pshim_host::races::{FILE, Pairs, text};

use crate::report::gather::{self, Options};
use crate::report::model::Race;
use crate::report::output::{self, PRIVATE};
use crate::report::{Suppressions, files, order};
use crate::runs;

/// Looks for the races of a run's traces, and writes their places beside these. Returns how many pairs there are.
///
/// # Errors
/// There are no traces, or no races that waits can end, or they cannot be written.
pub(super) fn write(folder: &Path, suppress: Option<&Suppressions>) -> Result<usize, String> {
    let shown = folder.display();
    let found = files::find(&[folder.to_owned()]).map_err(|error| format!("--races {shown}: {error}"))?;
    let options = Options { symbols: suppress.is_some(), with_arguments: false, suppress, filter: None };
    let report = gather::gather(&found, &runs::load(&found.runs), &options);
    let report = report.map_err(|error| format!("--races {shown}: {error}"))?;
    // Those that have a wait by now are to keep it. Nodes of a graph have no stream.
    let is_meant = |race: &&Race| ["race", "enforced"].contains(&&*race.level) && !order::are_nodes(race);
    let races = report.races.iter().filter(is_meant);
    let pairs: Pairs = races.map(|race| [race.first.from.site.clone(), race.second.from.site.clone()]).collect();
    if pairs.is_empty() {
        return Err(format!(
            "no race was found in {shown} that a wait could end: run the program with --order --trace {shown} first. \
             Memory that is freed too early, possible races, and nodes of a graph get no wait"
        ));
    }
    // Whoever can write there may have put a link in its place.
    let written = output::replace(&folder.join(FILE), PRIVATE, |out| out.write_all(text(&pairs).as_bytes()));
    written.map_err(|error| format!("--races {shown}: {FILE} cannot be written there: {error}"))?;
    Ok(pairs.len())
}
