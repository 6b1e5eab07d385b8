#!/bin/sh
# A prolog for Slurm (slurm.conf: Prolog=). Once per boot it tests the GPUs of the node. A node on which peer access loses data is drained.
# Written to $P2PSHIM_NODES/HOST.json, for `p2pshim fleet`; the folder may be shared by all nodes.
nodes=${P2PSHIM_NODES:-/var/lib/p2pshim}
done=$nodes/$(hostname).$(cat /proc/sys/kernel/random/boot_id)
[ -e "$done" ] && exit 0
mkdir -p "$nodes"
p2pshim doctor --json="$nodes/$(hostname).json"
case $? in
1)
    scontrol update nodename="${SLURMD_NODENAME:-$(hostname)}" state=drain reason="p2pshim doctor: peer access is unsafe"
    # Slurm starts the job elsewhere.
    exit 1
    ;;
0)
    rm -f "$nodes/$(hostname)".*-*
    # Not `: >`, which would end this script, and so drain the node, if it failed.
    touch "$done"
    ;;
esac
# A node that could not be tested, or whose result could not be written, keeps working, and is tested again before the next job.
exit 0
