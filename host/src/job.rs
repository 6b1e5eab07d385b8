//! Which process of which job a process is, by its environment.

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

/// The variable that says of which `p2pshim run` a process is.
pub const RUN: &str = "P2PRUN_ID";

/// The variable that says where the processes of a `p2pshim run` tell each other which memory they export.
pub const EXPORTS: &str = "P2PRUN_EXPORTS";

/// Variables that say which job it is of, where in it, and which devices it sees.
pub const OTHERS: &[&str] = &[
    "LOCAL_RANK",
    "WORLD_SIZE",
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
