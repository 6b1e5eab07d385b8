//! The verdict as others read it: one file of JSON beside the kept verdicts, made of all that hold. docs/VERDICT.md says how to read it.

use std::collections::BTreeMap;

use p2pshim_host::machine;
use p2pshim_host::verdict::{Finding, Verdict};
use p2pshim_host::verdicts::{self, Cache, Facts, Question};
use serde::Serialize;
use serde_json::Value;

use super::lines::Test;

/// The verdict of p2pshim on this machine's GPUs, for programs that use peer access. Fields are never renamed within a version; new ones
/// may come, and new parts.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "verdict-BOOT.json"))]
pub(super) struct Published {
    /// The version of this format. It changes only if fields change their meaning.
    #[cfg_attr(test, schemars(extend("const" = 1)))]
    version: u32,
    /// The version of p2pshim.
    p2pshim: &'static str,
    /// The machine's name.
    host: String,
    /// The run of the machine, as /proc/sys/kernel/random/boot_id has it. In another run, or on another machine, the file says nothing.
    boot: String,
    /// NVIDIA's kernel module, as /sys/module/nvidia/version has it; null for none. With another version the file says nothing.
    kernel_module: Option<String>,
    /// When it was written. Nanoseconds since 1970, UTC.
    time: u64,
    /// GPUs of the pairs.
    gpus: Vec<Gpu>,
    /// Pairs of which a part was tested. A pair that is not here was not tested, or has no path.
    pairs: Vec<Pair>,
}

/// A GPU. If BAR1 or the IOMMU are different now, its pairs say nothing.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Gpu {
    /// Its UUID.
    uuid: String,
    /// Its PCI bus id.
    bus_id: String,
    /// Bytes of its BAR1, in hexadecimal, by the second line of `resource` in sysfs; null if that cannot be read.
    bar1: Option<String>,
    /// The type of its IOMMU group, as `iommu_group/type` in sysfs has it; null if that cannot be read.
    iommu: Option<String>,
}

/// Two GPUs.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Pair {
    /// The UUID of the GPU that accesses.
    from: String,
    /// The UUID of the GPU whose memory it is.
    to: String,
    /// CUDA, as the driver had it, as a number: 13000 is 13.0.
    cuda_version: i32,
    /// The faults of simulated GPUs; null for real ones.
    simulated: Option<String>,
    /// The parts that were tested, by their words: copies, loads, stores, atomics, flags, ipc, vmm, all-memory, all-pairs and others.
    parts: BTreeMap<&'static str, Part>,
}

/// How a part came out.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Part {
    /// Whether every byte was right, data was wrong, it did not end, or it could not be tested here.
    #[cfg_attr(test, schemars(extend("enum" = ["right", "wrong", "hung", "untested"])))]
    result: &'static str,
    /// The error, or the reason why it could not be tested; null if all is right.
    detail: Option<String>,
}

impl Published {
    fn of(cache: &Cache) -> Option<Self> {
        let mut facts = Facts::new();
        let kept = cache.all(&mut facts);
        let known = |text: &str| Some(text.to_owned()).filter(|text| text != "-");
        let ends = kept.iter().flat_map(|(question, _)| {
            let Question { from_uuid, from_bus_id, to_uuid, to_bus_id, .. } = question;
            [(from_uuid, from_bus_id), (to_uuid, to_bus_id)]
        });
        let ends: BTreeMap<&String, &String> = ends.collect();
        let mut gpu = |(uuid, bus_id): (&String, &String)| {
            let place = facts.place(bus_id);
            let (bar1, iommu) = (known(&place.bar1), known(&place.iommu));
            Gpu { uuid: uuid.clone(), bus_id: bus_id.clone(), bar1, iommu }
        };
        Some(Self {
            version: 1,
            p2pshim: env!("CARGO_PKG_VERSION"),
            host: machine::host_name(),
            boot: verdicts::boot()?,
            kernel_module: verdicts::kernel_module(),
            time: machine::now(),
            gpus: ends.into_iter().map(&mut gpu).collect(),
            pairs: kept.iter().filter_map(pair).collect(),
        })
    }
}

/// None if no part was tried.
fn pair((question, verdict): &(Question, Verdict)) -> Option<Pair> {
    let part = |part: Test| {
        let finding: &Finding = verdict.finding(part)?;
        Some((part.word(), Part { result: finding.word(), detail: finding.detail().map(str::to_owned) }))
    };
    let parts: BTreeMap<_, _> = Test::ALL.into_iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| Pair {
        from: question.from_uuid.clone(),
        to: question.to_uuid.clone(),
        cuda_version: question.driver_version,
        simulated: question.faults.clone(),
        parts,
    })
}

/// Writes the file anew; returns whether it is there. Those of earlier runs of this machine go.
pub(super) fn publish(cache: &Cache) -> bool {
    let Some(published) = Published::of(cache) else { return false };
    let Ok(text) = serde_json::to_string_pretty(&published) else { return false };
    let is = |other: &Value, name: &str, value: &str| other.get(name).and_then(Value::as_str) == Some(value);
    let is_outdated = |text: &str| {
        serde_json::from_str(text)
            .is_ok_and(|other: Value| is(&other, "host", &published.host) && !is(&other, "boot", &published.boot))
    };
    cache.publish(&format!("verdict-{}", published.boot), &(text + "\n"), is_outdated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_schema_is_that_of_the_verdict() {
        crate::schema::compare::<Published>("verdict");
    }

    #[test]
    fn publish_has_what_holds_and_only_parts_that_were_tried() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let user = std::fs::metadata("/proc/self").unwrap().uid();
        let cache = Cache::of(Some(folder.path().into()), None, user).unwrap();
        let question = |to: &str, faults: Option<&str>| Question {
            from_uuid: "GPU-a".to_owned(),
            from_bus_id: "ffff:01:00.0".to_owned(),
            to_uuid: to.to_owned(),
            to_bus_id: "ffff:02:00.0".to_owned(),
            driver_version: 13000,
            faults: faults.map(str::to_owned),
        };
        let wrong = Verdict::of(Test::Ipc, Finding::Wrong("lost".to_owned()));
        for (question, verdict) in [
            (question("GPU-b", None), wrong.updated(Verdict::of(Test::Copies, Finding::Right), false)),
            (question("GPU-c", Some("drop:0-1;")), Verdict::of(Test::Loads, Finding::Right)),
            (question("GPU-d", None), Verdict::default()),
        ] {
            assert!(cache.put(&Facts::new().key(&question).unwrap(), verdict, false));
        }
        assert!(publish(&cache) && publish(&cache));
        let boot = verdicts::boot().unwrap();
        let text = std::fs::read_to_string(cache.folder().join(format!("verdict-{boot}.json"))).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["version"], &json["boot"]), (&1.into(), &boot.into()));
        assert_eq!(json["gpus"].as_array().unwrap().len(), 4);
        let pair = serde_json::json!({
            "from": "GPU-a", "to": "GPU-b", "cuda_version": 13000, "simulated": null,
            "parts": {"copies": {"result": "right", "detail": null}, "ipc": {"result": "wrong", "detail": "lost"}},
        });
        assert_eq!((json["pairs"].as_array().unwrap().len(), &json["pairs"][0]), (2, &pair));
        assert_eq!(json["pairs"][1]["simulated"], "drop:0-1;");
    }
}
