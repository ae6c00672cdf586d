#!/usr/bin/env bash
# Two Slurm nodes on one throwaway Debian machine, for tests/test_slurm.py. As root:
#
#   bash scripts/slurm_on_one_machine.sh && .venv/bin/pytest tests/test_slurm.py
#
# It installs slurm-wlm and munge, writes /etc/slurm/slurm.conf and two names into /etc/hosts.
set -euo pipefail
apt-get install -y -qq slurm-wlm munge
host=$(hostname)
mkdir -p /etc/slurm /run/munge /var/spool/slurmctld /var/spool/slurmd-one /var/spool/slurmd-two
chown munge: /run/munge
grep -q ' one two$' /etc/hosts || echo '127.0.0.1 one two' >>/etc/hosts
cat >/etc/slurm/slurm.conf <<EOF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd-%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
NodeName=one NodeHostname=$host NodeAddr=127.0.0.1 Port=17001 CPUs=$(nproc)
NodeName=two NodeHostname=$host NodeAddr=127.0.0.1 Port=17002 CPUs=$(nproc)
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
pgrep -x munged >/dev/null || runuser -u munge -- munged
pgrep -x slurmctld >/dev/null || slurmctld
for node in one two; do
  pgrep -f "slurmd -N $node" >/dev/null || slurmd -N "$node"
done
for _ in $(seq 20); do
  sinfo --noheader --format=%T | grep -q idle && break
  sleep 1
done
sinfo
