#!/usr/bin/env bash
# Installs (Debian packages, as root), starts and stops the system services that tests use.
#   services.sh start   installs what is missing, starts all, writes where they are to .services/env
#   services.sh stop    stops what `start` started, and removes its files
# Chromium needs no start; it is installed here so that tests find it.
set -euo pipefail
cd "$(dirname "$0")/.."
state=$PWD/.services
data=/var/lib/dsv4-ci-services-$(pwd | md5sum | cut -c1-8) # PostgreSQL and Slurm want a folder that other users may enter

free_ports() { python3 - "$1" <<'PY'
import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in held))
PY
}

install_packages() {
  local missing=()
  command -v chromium >/dev/null || missing+=(chromium)
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
  command -v slurmctld >/dev/null || missing+=(slurmctld slurmd slurm-client)
  command -v munged >/dev/null || missing+=(munge)
  [ ${#missing[@]} = 0 ] && return
  if [ "$(id -u)" != 0 ]; then
    echo "services: these Debian packages are missing and only root can install them: ${missing[*]}" >&2
    exit 3
  fi
  echo "services: installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # A package must not start a daemon of its own: the tests start theirs.
  printf '#!/bin/sh\nexit 101\n' >"$state/policy-rc.d" && chmod +x "$state/policy-rc.d"
  [ -e /usr/sbin/policy-rc.d ] || { cp "$state/policy-rc.d" /usr/sbin/policy-rc.d && trap 'rm -f /usr/sbin/policy-rc.d' RETURN; }
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$state/apt.log" 2>&1 || { tail -20 "$state/apt.log" >&2; exit 3; }
}

start_postgres() {
  local bin port
  bin=$(dirname "$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -V | tail -1)")
  port=$(free_ports 1)
  mkdir -p "$data/pg"
  chown postgres "$data/pg"
  local as=(runuser -u postgres --)
  "${as[@]}" "$bin/initdb" -D "$data/pg/db" -U matrix --auth=trust --no-sync -E UTF8 >"$state/initdb.log"
  "${as[@]}" "$bin/pg_ctl" -D "$data/pg/db" -w -l "$data/pg/log" -o "-p $port -k $data/pg -c listen_addresses=127.0.0.1" start >/dev/null
  {
    echo "export MATRIX_TEST_POSTGRES=postgresql+psycopg://matrix@127.0.0.1:$port/postgres"
    echo "export MATRIX_TEST_PG_CTL='runuser -u postgres -- $bin/pg_ctl -D $data/pg/db'"
  } >>"$state/env"
}

stop_postgres() {
  [ -d "$data/pg/db" ] || return 0
  local ctl
  ctl=$(compgen -G '/usr/lib/postgresql/*/bin/pg_ctl' | sort -V | tail -1)
  runuser -u postgres -- "$ctl" -D "$data/pg/db" -m immediate stop >/dev/null 2>&1 || true
}

start_slurm() {
  local ports
  read -ra ports <<<"$(free_ports 3)"
  mkdir -p "$data/slurm/state" "$data/slurm/log" "$data/slurm/munge"
  if [ ! -f "$data/slurm/munge/key" ]; then
    dd if=/dev/urandom of="$data/slurm/munge/key" bs=1024 count=1 status=none
    chmod 400 "$data/slurm/munge/key"
  fi
  chmod 755 "$data" "$data/slurm" "$data/slurm/munge"
  munged --force --key-file="$data/slurm/munge/key" --socket="$data/slurm/munge/socket" --pid-file="$data/slurm/munge/pid" \
    --log-file="$data/slurm/munge/log" --seed-file="$data/slurm/munge/seed"
  for i in 0 1 2 3 4 5 6 7; do [ -e "/dev/fakegpu$i" ] || mknod "/dev/fakegpu$i" c 240 "$i"; done
  cat >"$data/slurm/slurm.conf" <<CONF
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$data/slurm/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$data/slurm/state
SlurmdSpoolDir=$data/slurm/spool.%n
SlurmctldPidFile=$data/slurm/slurmctld.pid
SlurmdPidFile=$data/slurm/slurmd.%n.pid
SlurmctldLogFile=$data/slurm/log/ctld.log
SlurmdLogFile=$data/slurm/log/slurmd.%n.log
SlurmctldPort=${ports[0]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,kill_invalid_depend
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
GresTypes=gpu
KillWait=2
JobRequeue=1
MessageTimeout=30
SlurmdTimeout=20
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$data/slurm/log/jobcomp.log
SlurmdParameters=config_overrides
NodeName=gpu1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=16 RealMemory=8000 Gres=gpu:H20:4 State=UNKNOWN
NodeName=gpu2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=16 RealMemory=8000 Gres=gpu:H20:4 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=gpu Nodes=gpu1,gpu2 Default=YES MaxTime=60 State=UP OverSubscribe=NO PriorityTier=1
PartitionName=urgent Nodes=gpu1,gpu2 MaxTime=60 State=UP OverSubscribe=NO PriorityTier=9
CONF
  cat >"$data/slurm/gres.conf" <<CONF
NodeName=gpu1 Name=gpu Type=H20 File=/dev/fakegpu[0-3]
NodeName=gpu2 Name=gpu Type=H20 File=/dev/fakegpu[4-7]
CONF
  ulimit -n 4096 # slurmd closes every descriptor below the limit, one by one
  export SLURM_CONF=$data/slurm/slurm.conf
  slurmctld
  slurmd -N gpu1
  slurmd -N gpu2
  for _ in $(seq 60); do
    [ "$(sinfo -h -p gpu -o '%D %T' 2>/dev/null)" = "2 idle" ] && break
    sleep 0.5
  done
  {
    echo "export SLURM_CONF=$data/slurm/slurm.conf"
    echo "export MATRIX_TEST_SLURM=$data/slurm"
  } >>"$state/env"
}

stop_slurm() {
  local file pid pids=()
  for file in "$data"/slurm/slurmd.*.pid "$data"/slurm/slurmctld.pid "$data"/slurm/munge/pid; do
    [ -s "$file" ] && pids+=("$(cat "$file")")
  done
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do # they write their state when they end: wait for it
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$pid" 2>/dev/null || true
  done
}

case "${1:-}" in
  start)
    bash "$0" stop
    mkdir -p "$state"
    install_packages
    : >"$state/env"
    if [ "$(id -u)" = 0 ]; then
      start_postgres
      start_slurm
    else
      echo "services: PostgreSQL and Slurm are started for root only; the tests that need them will say so and fail" >&2
    fi
    ;;
  stop)
    stop_postgres
    stop_slurm
    rm -rf "$state" "$data"
    ;;
  *)
    echo "usage: services.sh start|stop" >&2
    exit 2
    ;;
esac
