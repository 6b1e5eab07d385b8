//! Which process of which job a process is, by its environment.

use std::ffi::OsString;

/// Variables that say which rank of a job a process is, best first.
pub const RANKS: &[&str] = &[
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "MPI_RANK",
    "SLURM_PROCID",
    "FLUX_TASK_RANK",
    "PALS_RANKID",
    "JSM_NAMESPACE_RANK",
];

/// Variables that say how many processes of the job are on this machine, best first. Some have more behind the number.
pub const HERE: &[&str] = &[
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "SLURM_NTASKS_PER_NODE",
];

/// Variables that say how many ranks the job has, best first.
pub const SIZES: &[&str] = &["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE"];

/// How many processes of the job are on this machine, as far as a variable says so.
pub fn ranks_here(variable: impl Fn(&str) -> Option<OsString>) -> usize {
    let number = |name: &&str| {
        let value = variable(name)?.into_string().ok()?;
        let end = value.find(|char: char| !char.is_ascii_digit()).unwrap_or(value.len());
        value.get(..end)?.parse().ok().filter(|&ranks| ranks > 0)
    };
    HERE.iter().find_map(number).unwrap_or(1)
}

/// The variable that says of which `p2pshim run` a process is.
pub const RUN: &str = "P2PRUN_ID";

/// The variable that says where the processes of a `p2pshim run` tell each other which memory they export.
pub const EXPORTS: &str = "P2PRUN_EXPORTS";

/// Variables that say which job it is of, where in it, and which devices it sees.
pub const OTHERS: &[&str] = &[
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMIX_NAMESPACE",
    "SLURM_LOCALID",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "FLUX_JOB_ID",
    "PALS_APID",
    "LSB_JOBID",
    "PBS_JOBID",
    RUN,
    "CUDA_VISIBLE_DEVICES",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_launcher_that_says_so_says_how_many_processes_are_here() {
        for (variables, ranks) in [
            (&[][..], 1),
            (&[("SLURM_NTASKS_PER_NODE", "4(x2)")][..], 4),
            (&[("SLURM_NTASKS_PER_NODE", "1"), ("LOCAL_WORLD_SIZE", "8")], 8),
            (&[("LOCAL_WORLD_SIZE", ""), ("MPI_LOCALNRANKS", "2")], 2),
            (&[("LOCAL_WORLD_SIZE", "0"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "x")], 1),
        ] {
            let variable =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            assert_eq!(ranks_here(variable), ranks, "{variables:?}");
        }
    }
}
