//! Texts about CUDA calls in HIP's words: HIP has the same functions under its own names.

/// Replacements that are more than another name; applied first, in this order.
const PHRASES: &[(&str, &str)] = &[
    ("`p2pshim doctor` and `nvidia-smi topo -p2p r` show", "`rocm-smi --showtopo` shows"),
    (
        " With P2PSHIM_CAPTURE=rewrite, the default, p2pshim makes an equivalent copy that can be captured, where there is one.",
        "",
    ),
    (" A program that uses the driver API must call cuInit first.", ""),
    (", that the driver is as new as the runtime (nvidia-smi shows the newest CUDA that it supports), and ", ", and "),
    (" or cuMemAlloc", ""),
    ("(cudaSetDevice, cuCtxSetCurrent)", "(hipSetDevice)"),
    (
        " Run p2pshim doctor once after each boot: it names the cause, and p2pshim then refuses access when a program first asks for it.",
        " The log's line about the pair names the likely cause.",
    ),
    // It does not, in HIP.
    (" A reset of either device ends it.", ""),
    (" Do not disable after a reset.", ""),
    ("run with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer", "run with AMD_SERIALIZE_KERNEL=3 or under rocgdb"),
    ("Its copies go through the host.", "Its kernels cannot access the peer's memory."),
    (
        "Copies between them go through the host, which was not tested.",
        "Copies between them take the path all the same.",
    ),
    ("Copies between them still work, through the host.", "Copies between them work all the same."),
    (
        "but enabled. p2pshim stages copies on such a path itself. It cannot stage copies of graphs, which CUDA makes; synchronous \
         copies while a stream is being captured; batches that have to read their sources during the call; \
         copies of memory that another process allocated; copies for which CUDA has no streams and events left; and copies of HIP, which maps memory for copies whatever is enabled.",
        "but HIP maps memory for copies whatever is enabled, and p2pshim does not stage them.",
    ),
    (
        "Do not let the program enable peer access: without P2PSHIM_BROKEN=warn it gets none where data does not arrive. p2pshim doctor \
         shows the cause.",
        "Copy through memory of the host. The log's line about the pair names the likely cause.",
    ),
    ("the attributes 1 to 5; an older driver has fewer", "the attributes 0 to 3"),
    ("CUDA 13", "HIP 7"),
    ("nvidia-smi", "rocm-smi"),
    ("CUDA", "HIP"),
    ("cuda", "hip"),
];

/// A text in HIP's words.
pub(super) fn hipify(text: &str) -> String {
    PHRASES.iter().fold(text.to_owned(), |text, (cuda, hip)| text.replace(cuda, hip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Rule;

    /// p2pshim stages no copies of HIP.
    #[test]
    fn hipify_promises_no_staging() {
        for rule in [Rule::DataBlocked, Rule::EnableUnsupported, Rule::EnableBroken, Rule::EnableDenied] {
            let said = [rule.text().why, rule.text().remedy].map(hipify).concat();
            assert!(!said.contains("stages") && !said.contains("through the host"), "{said}");
        }
        assert!(hipify(Rule::DataBlocked.text().why).ends_with("p2pshim does not stage them."));
    }

    #[test]
    fn hipify_nothing_of_cuda_is_left_in_rules_about_hip() {
        let is_about_hip = |rule: &&Rule| {
            let text = rule.text();
            text.functions.contains("hip")
                || (text.functions.starts_with("all ") && !text.functions.contains("of CUDA"))
        };
        let about_hip: Vec<_> = Rule::ALL.iter().filter(is_about_hip).collect();
        assert!(about_hip.len() > 20);
        for rule in about_hip {
            let text = rule.text();
            // These are found for CUDA only.
            if ["P2P-staged-", "P2P-slow-small", "P2P-copy-freed", "P2P-copy-mapped"]
                .iter()
                .any(|id| text.id.starts_with(id))
            {
                continue;
            }
            for said in [text.why, text.remedy] {
                let said = hipify(said);
                let words: Vec<&str> = said.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
                let is_of_cuda = |word: &&&str| {
                    let word = word.to_lowercase();
                    word.contains("cuda") || word.contains("nvidia") || (word.starts_with("cu") && word.contains("ctx"))
                };
                assert_eq!(words.iter().find(is_of_cuda), None, "{}: {said}", rule.id());
            }
        }
    }
}
