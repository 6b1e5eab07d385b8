//! Programs that use peer access: on which parts of the verdict each use relies, and what switches it off. docs/VERDICT.md has the table.
//!
//! A switch only ever takes a use away. Nothing tells another program that peer access works.

use clap::ValueEnum;

use super::lines::Test;

/// A program or library, by the name that `--env-for` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Consumer {
    #[value(name = "p2pshim")]
    P2pshim,
    #[value(name = "nccl")]
    Nccl,
    #[value(name = "vllm")]
    Vllm,
    #[value(name = "sglang")]
    Sglang,
    #[value(name = "tensorrt-llm")]
    TensorRtLlm,
    #[value(name = "pytorch")]
    PyTorch,
    #[value(name = "ucx")]
    Ucx,
    #[value(name = "nvshmem")]
    Nvshmem,
    #[value(name = "quda")]
    Quda,
    #[value(name = "ggml")]
    Ggml,
    #[value(name = "jax")]
    Jax,
}

impl Consumer {
    /// Its name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::P2pshim => "programs under p2pshim",
            Self::Nccl => "NCCL",
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::TensorRtLlm => "TensorRT-LLM",
            Self::PyTorch => "PyTorch",
            Self::Ucx => "UCX",
            Self::Nvshmem => "NVSHMEM",
            Self::Quda => "QUDA",
            Self::Ggml => "GGML (llama.cpp)",
            Self::Jax => "JAX",
        }
    }
}

/// How a use is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    /// By p2pshim's variable, which names the pairs.
    Deny,
    /// By a variable with a value.
    Set(&'static str, &'static str),
    /// By a variable that must not be set: any value of it switches the use on.
    Unset(&'static str),
    /// By an argument or a setting of the program, which no variable replaces.
    Argument(&'static str),
    /// By nothing outside of the program; a text says what to do.
    Nothing(&'static str),
}

/// The parts of the verdict that a use relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reliance {
    On(&'static [Test]),
    /// All but these, also those that are added later.
    AllBut(&'static [Test]),
}

use Reliance::{AllBut, On};

/// Kernels of memory that all processes map at one address, and multicast.
const SYMMETRIC: Reliance = AllBut(&[Copies, Graphs, Ll, Ll128, Ipc, IpcKernels]);

/// A use of peer access.
pub(super) struct Use {
    pub(super) consumer: Consumer,
    /// Its name for people.
    pub(super) name: &'static str,
    relies_on: Reliance,
    pub(super) switch: Switch,
    /// The version that brought the switch, or where that is not known the oldest in which it was read.
    pub(super) since: &'static str,
    /// The place that says so: a page, or a file of the project's source.
    pub(super) source: &'static str,
    /// The path that its data takes instead.
    pub(super) instead: &'static str,
}

impl Use {
    /// Whether it goes wrong if this part is wrong.
    pub(super) fn relies_on(&self, part: Test) -> bool {
        match self.relies_on {
            On(parts) => parts.contains(&part),
            AllBut(parts) => !parts.contains(&part),
        }
    }

    /// Whether it is known to do what this part tests, beside what every program does.
    pub(super) fn names(&self, part: Test) -> bool {
        part != Test::AllMemory && matches!(self.relies_on, On(parts) if parts.contains(&part))
    }
}

use Test::{Atomics, Copies, Flags, Graphs, Ipc, IpcKernels, Ll, Ll128, Loads, Pools, Pull, Stores, Vmm};

const NCCL_PAGE: &str = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html";
const NVSHMEM: &str = "https://github.com/NVIDIA/nvshmem/blob/main/src/include/host/env/env_defs.h";
const VLLM_ARGUMENTS: &str = "https://docs.vllm.ai/en/stable/configuration/engine_args/";
const VLLM_VARIABLES: &str = "https://docs.vllm.ai/en/stable/configuration/env_vars/";
const SGLANG_ARGUMENTS: &str =
    "https://github.com/sgl-project/sglang/blob/main/docs/advanced_features/server_arguments.md";
const PYTORCH: &str = "https://github.com/pytorch/pytorch/tree/main/torch/csrc/distributed/c10d/symm_mem";

/// All uses, in the order of the output.
pub(super) const USES: &[Use] = &[
    Use {
        consumer: Consumer::P2pshim,
        name: "direct copies, and peer access of the program",
        relies_on: AllBut(&[Ll, Ll128, Ipc, Vmm, IpcKernels]),
        switch: Switch::Deny,
        since: "0.1.0",
        source: "OPTIONS.md",
        instead: "copies through the host",
    },
    Use {
        consumer: Consumer::Nccl,
        name: "P2P transport",
        relies_on: AllBut(&[Graphs, Ll, Ll128]),
        switch: Switch::Set("NCCL_P2P_DISABLE", "1"),
        since: "2.3.7 or older",
        source: NCCL_PAGE,
        instead: "shared memory or the network",
    },
    Use {
        consumer: Consumer::Nccl,
        name: "protocol LL",
        relies_on: On(&[Ll]),
        switch: Switch::Set("NCCL_PROTO", "^LL"),
        since: "2.5",
        source: NCCL_PAGE,
        instead: "other protocols",
    },
    Use {
        consumer: Consumer::Nccl,
        name: "protocol LL128",
        relies_on: On(&[Ll128]),
        switch: Switch::Set("NCCL_PROTO", "^LL128"),
        since: "2.5",
        source: NCCL_PAGE,
        instead: "other protocols",
    },
    Use {
        consumer: Consumer::Nccl,
        name: "NVLink SHARP (NVLS)",
        relies_on: SYMMETRIC,
        switch: Switch::Set("NCCL_NVLS_ENABLE", "0"),
        since: "2.17",
        source: NCCL_PAGE,
        instead: "rings and trees",
    },
    Use {
        consumer: Consumer::Vllm,
        name: "custom all-reduce",
        relies_on: AllBut(&[Copies, Pools, Graphs, Atomics, Ll, Ll128, Vmm]),
        switch: Switch::Argument("--disable-custom-all-reduce"),
        since: "#2192 (2023)",
        source: VLLM_ARGUMENTS,
        instead: "NCCL",
    },
    Use {
        consumer: Consumer::Vllm,
        name: "custom all-reduce without a test of its own",
        relies_on: AllBut(&[Copies, Pools, Graphs, Atomics, Ll, Ll128, Vmm]),
        switch: Switch::Set("VLLM_SKIP_P2P_CHECK", "0"),
        since: "2026 or older",
        source: VLLM_VARIABLES,
        instead: "a test of vLLM's own",
    },
    Use {
        consumer: Consumer::Vllm,
        name: "all-reduce in symmetric memory",
        relies_on: SYMMETRIC,
        switch: Switch::Set("VLLM_ALLREDUCE_USE_SYMM_MEM", "0"),
        since: "#20759 (2025)",
        source: VLLM_VARIABLES,
        instead: "custom all-reduce or NCCL",
    },
    Use {
        consumer: Consumer::Sglang,
        name: "custom all-reduce",
        relies_on: AllBut(&[Copies, Pools, Graphs, Atomics, Ll, Ll128, Vmm]),
        switch: Switch::Argument("--disable-custom-all-reduce"),
        since: "2026 or older",
        source: SGLANG_ARGUMENTS,
        instead: "NCCL",
    },
    Use {
        consumer: Consumer::Sglang,
        name: "all-reduce in symmetric memory, MSCCL++",
        relies_on: SYMMETRIC,
        switch: Switch::Nothing(
            "off unless --enable-torch-symm-mem, --enable-symm-mem or --enable-mscclpp is given: leave them out",
        ),
        since: "2026 or older",
        source: SGLANG_ARGUMENTS,
        instead: "NCCL",
    },
    Use {
        consumer: Consumer::TensorRtLlm,
        name: "all-reduce kernels",
        relies_on: AllBut(&[Copies, Graphs, Atomics, Ll128]),
        switch: Switch::Argument("allreduce_strategy: NCCL"),
        since: "2026 or older",
        source: "https://github.com/NVIDIA/TensorRT-LLM/blob/main/tensorrt_llm/llmapi/llm_args.py",
        instead: "NCCL",
    },
    Use {
        consumer: Consumer::PyTorch,
        name: "symmetric memory",
        relies_on: SYMMETRIC,
        switch: Switch::Nothing("no switch: do not call torch.distributed._symmetric_memory"),
        since: "2026 or older",
        source: PYTORCH,
        instead: "NCCL",
    },
    Use {
        consumer: Consumer::PyTorch,
        name: "multicast of symmetric memory",
        relies_on: SYMMETRIC,
        switch: Switch::Set("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),
        since: "2026 or older",
        source: PYTORCH,
        instead: "symmetric memory without multicast",
    },
    Use {
        consumer: Consumer::PyTorch,
        name: "all-reduce within a node",
        relies_on: SYMMETRIC,
        switch: Switch::Unset("ENABLE_INTRA_NODE_COMM"),
        since: "2026 or older",
        source: PYTORCH,
        instead: "NCCL",
    },
    Use {
        consumer: Consumer::Ucx,
        name: "cuda_ipc",
        relies_on: AllBut(&[
            Pools,
            Graphs,
            Loads,
            Stores,
            Atomics,
            Flags,
            Pull,
            Ll,
            Ll128,
            IpcKernels,
            Test::AllToAll,
            Test::AllReduce,
        ]),
        switch: Switch::Set("UCX_TLS", "^cuda_ipc"),
        since: "1.22 or older",
        source: "https://github.com/openucx/ucx/blob/master/docs/source/faq.md",
        instead: "cuda_copy through the host, or the network",
    },
    Use {
        consumer: Consumer::Nvshmem,
        name: "P2P transport",
        relies_on: AllBut(&[]),
        switch: Switch::Set("NVSHMEM_DISABLE_P2P", "1"),
        since: "3.4.5 or older",
        source: NVSHMEM,
        instead: "a remote transport, which has to exist",
    },
    Use {
        consumer: Consumer::Nvshmem,
        name: "NVLink SHARP (NVLS)",
        relies_on: SYMMETRIC,
        switch: Switch::Set("NVSHMEM_DISABLE_NVLS", "1"),
        since: "3.4.5 or older",
        source: NVSHMEM,
        instead: "the P2P transport",
    },
    Use {
        consumer: Consumer::Quda,
        name: "peer-to-peer communication",
        relies_on: AllBut(&[Pools, Graphs, Atomics, Ll, Ll128, Vmm]),
        switch: Switch::Set("QUDA_ENABLE_P2P", "0"),
        since: "0.9.0",
        source: "https://github.com/lattice/quda/blob/develop/include/communicator_quda.h",
        instead: "MPI or QMP",
    },
    Use {
        consumer: Consumer::Ggml,
        name: "peer access",
        relies_on: AllBut(&[Atomics, Flags, Pull, Ll, Ll128, Ipc, Vmm, IpcKernels]),
        switch: Switch::Unset("GGML_CUDA_P2P"),
        since: "#21910 (2026)",
        source: "https://github.com/ggml-org/llama.cpp/blob/master/docs/build.md",
        instead: "copies through the host",
    },
    Use {
        consumer: Consumer::Jax,
        name: "copies of XLA between GPUs",
        relies_on: On(&[Copies, Pools]),
        switch: Switch::Nothing(
            "no switch: use one process a GPU, whose transfers and collectives NCCL makes, with NCCL's variables",
        ),
        since: "2026 or older",
        source: "https://github.com/jax-ml/jax/issues/3802",
        instead: "NCCL",
    },
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/VERDICT.md");
    /// The lines of the page around the table.
    const BEGIN: &str = "<!-- The table comes from cli/src/doctor/consumers.rs: `make header` writes it. -->\n";
    const END: &str = "<!-- The end of the table. -->\n";
    const HEAD: &str =
        "\n| program | use | relies on | switched off by | since | instead |\n| --- | --- | --- | --- | --- | --- |\n";

    fn of_each_pair(part: Test) -> bool {
        !matches!(part, Test::AllMemory | Test::AllPairs | Test::AllToAll | Test::AllReduce)
    }

    fn markdown() -> String {
        let mut text = HEAD.to_owned();
        for it in USES {
            let relied = Test::ALL.into_iter().filter(|part| of_each_pair(*part) && it.relies_on(*part));
            let parts: Vec<&str> = relied.map(Test::word).collect();
            let parts = if it.relies_on == AllBut(&[]) { "every part".to_owned() } else { parts.join(", ") };
            let switch = match it.switch {
                Switch::Deny => "`P2PSHIM_DENY`, with the pairs".to_owned(),
                Switch::Set(name, value) => format!("`{name}={value}`"),
                Switch::Unset(name) => format!("`{name}` unset"),
                Switch::Argument(text) => format!("`{text}`"),
                Switch::Nothing(text) => text.to_owned(),
            };
            let value = it.consumer.to_possible_value().unwrap();
            text += &format!(
                "| `{}` {} | {} | {} | [{switch}]({}) | {} | {} |\n",
                value.get_name(),
                it.consumer.name(),
                it.name,
                parts,
                it.source,
                it.since,
                it.instead
            );
        }
        text + "\n"
    }

    /// The page before the table, the table, and the page after it.
    fn parts(page: &str) -> [&str; 3] {
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (table, after) = rest.split_once(END).unwrap();
        [before, table, after]
    }

    #[test]
    fn json_schema_and_page_of_consumers_are_the_tables() {
        let text = markdown();
        let page = fs::read_to_string(DOCUMENT).unwrap();
        let [before, table, after] = parts(&page);
        if std::env::var_os("P2PSHIM_UPDATE").is_some() {
            fs::write(DOCUMENT, format!("{before}{BEGIN}{text}{END}{after}")).unwrap();
        } else {
            assert!(table == text, "P2PSHIM_UPDATE=1 writes the table of {DOCUMENT} anew");
        }
    }

    #[test]
    fn uses_have_a_source_and_rely_on_something() {
        for it in USES {
            let is_address = it.source.starts_with("https://") || it.consumer == Consumer::P2pshim;
            assert!(is_address && it.since.contains(|one: char| one.is_ascii_digit()), "{}", it.name);
            assert!(Test::ALL.into_iter().any(|part| of_each_pair(part) && it.relies_on(part)), "{}", it.name);
        }
        for part in Test::ALL {
            assert!(USES.iter().any(|it| it.relies_on(part)), "{part:?}");
        }
        for consumer in Consumer::value_variants() {
            assert!(USES.iter().any(|it| it.consumer == *consumer), "{consumer:?}");
        }
    }

    #[test]
    fn switches_only_ever_take_away() {
        for it in USES {
            if let Switch::Set(name, value) = it.switch {
                let turns_off = value == "0" || value.starts_with('^') || value == "1" && name.contains("DISABLE");
                assert!(turns_off, "{name}={value}");
            }
        }
    }
}
