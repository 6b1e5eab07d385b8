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
    // It does not, in HIP.
    (" A reset of either device ends it.", ""),
    (" Do not disable after a reset.", ""),
    ("run with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer", "run with AMD_SERIALIZE_KERNEL=3 or under rocgdb"),
    ("Its copies go through the host.", "Its kernels cannot access the peer's memory."),
    ("the attributes 1 to 5; an older driver has fewer", "the attributes 0 to 3"),
    ("CUDA 13", "HIP 7"),
    ("nvidia-smi", "rocm-smi"),
    ("CUDA", "HIP"),
    ("cuda", "hip"),
];

/// The same in HIP's words.
pub(super) fn hipify(text: &str) -> String {
    PHRASES.iter().fold(text.to_owned(), |text, (cuda, hip)| text.replace(cuda, hip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Rule;

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
