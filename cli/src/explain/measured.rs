//! The codes that real GPUs returned: the conformance tables, and the shim's findings in their calls.

/// Return codes of two H200, for copies that name their devices and all other functions, and for copies that do not.
const TABLES: [&str; 2] = [
    include_str!("../../../tests/golden/conformance.tsv"),
    include_str!("../../../tests/golden/conformance-regular.tsv"),
];

/// The findings in calls of these tables.
const FINDINGS: &str = include_str!("../../../tests/golden/conformance-findings.tsv");

/// Where and when it was measured: what the head of the first table says, in short.
pub(super) const MACHINE: &str = "two H200 or H100, driver 580.159.04, CUDA 13.0";

/// A call in a process of its own.
pub(super) struct Call {
    /// Steps before it.
    setup: &'static str,
    call: &'static str,
    /// The codes that the documentation gives for it.
    documented: &'static str,
    pub(super) returned: &'static str,
}

impl Call {
    /// The function. Forms for per-thread default streams count as the function that they are of.
    pub(super) fn function(&self) -> &'static str {
        let name = self.call.split('(').next().unwrap_or_default();
        name.strip_suffix("_ptds").or(name.strip_suffix("_ptsz")).unwrap_or(name)
    }

    /// Whether the documentation gives a code for it.
    pub(super) fn documents(&self, code: &str) -> bool {
        self.documented.split(',').any(|documented| documented == code)
    }

    /// The ids of what the shim finds in it.
    pub(super) fn findings(&self) -> impl Iterator<Item = &'static str> {
        let row = rows(FINDINGS).find(|[setup, call, ..]| (*setup, *call) == (self.setup, self.call));
        let found = row.map_or("", |[_, _, shared, fixed]| if shared.is_empty() { fixed } else { shared });
        found.split("; ").filter(|id| !id.is_empty())
    }

    /// The call and what was done before it, for people.
    pub(super) fn shown(&self) -> String {
        match self.setup {
            "" => self.call.to_owned(),
            setup => format!("{} after {}", self.call, setup.replace(';', ", ")),
        }
    }
}

/// All calls that were measured.
pub(super) fn calls() -> impl Iterator<Item = Call> {
    let calls = TABLES.into_iter().flat_map(rows);
    calls.map(|[setup, call, documented, returned]| Call { setup, call, documented, returned })
}

/// The first four columns of a table, without its head.
fn rows(table: &'static str) -> impl Iterator<Item = [&'static str; 4]> {
    let lines = table.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines.map(|line| {
        let mut columns = line.split('\t');
        [(); 4].map(|()| columns.next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_all_rows_of_the_tables() {
        assert_eq!(calls().count(), 703 + 192);
        assert!(calls().all(|call| call.returned == "crash" || call.returned.parse::<u32>().is_ok()));
    }

    #[test]
    fn machine_is_that_of_the_tables() {
        let head = TABLES[0].lines().next().unwrap();
        assert!(head.contains("2x H200") && MACHINE.split(", ").skip(1).all(|part| head.contains(part)), "{head}");
    }

    #[test]
    fn findings_of_a_call_are_those_of_its_row() {
        let twice = calls().find(|call| call.returned == "704").unwrap();
        assert_eq!(twice.findings().collect::<Vec<_>>(), ["P2P-enable-twice"]);
        assert_eq!(twice.shown(), "cudaDeviceEnablePeerAccess(1,0) after cudaDeviceEnablePeerAccess(1,0)");
        assert_eq!((twice.function(), twice.documents("704")), ("cudaDeviceEnablePeerAccess", true));
    }
}
