# The job of `ng submit`. It runs on the first node: it starts the servers of the other nodes, collects, drains before the
# time limit, and requeues itself until no rollout is unresolved.
set -u
# The shell must not wait for input that only the job's steps could read.
exec </dev/null
cd "$working_folder" || exit 1

attempt=$((${SLURM_RESTART_COUNT:-0} + 1))
# Two jobs on one node need different ports, below the range from which systems take ports for connections.
port=${head_port:-$((20000 + SLURM_JOB_ID % 6000 * 2))}
ray_port=$((20001 + SLURM_JOB_ID % 6000 * 2))
head=$SLURMD_NODENAME
mapfile -t names < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
address=$(scontrol show node --oneliner "$head" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
address=${address:-$head}
[[ $address == *:* ]] && address="[$address]"

say() { printf '%(%F %T)T job %s, attempt %s: %s\n' -1 "$SLURM_JOB_ID" "$attempt" "$*"; }

# Run a command on nodes, once on each. The caller starts it in the background, so that it becomes the srun process.
step() {
    local nodes=$1 count=$2
    shift 2
    exec srun --overlap --kill-on-bad-exit=0 --nodes="$count" --ntasks="$count" --ntasks-per-node=1 \
        --nodelist="$nodes" "${of_srun[@]}" "${log[@]}" "${inside[@]}" "$@"
}
log=()

# In this folder the collection listens for `ng eval ctl`, also in a container with a /tmp of its own.
collector() { step "$head" 1 env XDG_RUNTIME_DIR="$folder/control" "${program[@]}" "$@"; }
control() { (collector eval ctl "$output" "$1") >/dev/null 2>&1; }
# An srun that gets SIGTERM kills its step.
end_steps() { scancel --signal=TERM "$SLURM_JOB_ID" 2>/dev/null; }
unresolved() { sed -n 's/^ *"outcomes": .*"unresolved":\([0-9]*\).*/\1/p' "$record" 2>/dev/null; }

# Slurm sends USR1 before the time limit, `ng submit cancel` sends USR2.
asked=
trap 'asked=${asked:-limit}' USR1
trap 'asked=cancel' USR2

# Otherwise each node without a token would make one of its own.
[[ -n $on_ray ]] && export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$folder/ray_token"

background=()
for node in "${names[@]}"; do
    log=(--output="$folder/node-%N.log" --open-mode=append)
    if [[ -n $node_command ]]; then
        step "$node" 1 bash -c "$node_command" &
        background+=($!)
    fi
    if [[ -n $on_ray && $node == "$head" ]]; then
        step "$node" 1 "$ray" start --block --disable-usage-stats --head --node-ip-address="$address" --port="$ray_port" &
        background+=($!)
    elif [[ -n $on_ray ]]; then
        # It waits for the head, and gives up by itself.
        step "$node" 1 "$ray" start --block --disable-usage-stats --address="$address:$ray_port" &
        background+=($!)
    fi
    log=()
done

if [[ -n $on_ray ]]; then
    for ((second = 0; second < 60; second++)); do
        (exec 3<>"/dev/tcp/${address//[\[\]]/}/$ray_port") 2>/dev/null && break
        sleep 1
    done
fi

words=("${at_first[@]}")
# The record is newer than the script once an earlier attempt has begun.
[[ $record -nt $folder/job.sbatch ]] && words=(--resume)
words+=(--head_server.port "$port")
[[ -n $on_ray ]] && words+=(--ray-head-node-address "$address:$ray_port" --advertised-host "$address")
[[ -n $only_on_head ]] && words+=(--only "$only_on_head" --advertised-host "$address")

say "starting on ${names[*]}"
collector "${collect[@]}" "${words[@]}" &
collecting=$!
parts=()
for index in "${!part_nodes[@]}"; do
    hosts=()
    for number in ${part_nodes[index]}; do hosts+=("${names[number]}"); done
    log=(--output="$folder/node-%N.log" --open-mode=append)
    step "$(IFS=, && echo "${hosts[*]}")" "${#hosts[@]}" "${program[@]}" "${serve[@]}" \
        --only "${part_servers[index]}" --join "$scheme://$address:$port" &
    parts+=($!)
    log=()
done

drains_until=
is_draining=
is_stopped=
while kill -0 "$collecting" 2>/dev/null; do
    if [[ -n $asked && -z $drains_until ]]; then
        reason="cancelled"
        [[ $asked == limit ]] && reason="the time limit is near"
        say "$reason, so the collection drains"
        # The rest of the time is for metrics and records.
        drains_until=$((SECONDS + drain_s * 3 / 4))
    fi
    if [[ -n $drains_until && -z $is_stopped ]]; then
        if ((SECONDS >= drains_until)); then
            say "some rollouts are still running, so they stay unresolved"
            control stop || end_steps
            is_stopped=yes
        elif [[ -z $is_draining ]]; then
            # It does not listen while it starts, nor while it computes its metrics.
            control drain && is_draining=yes
        fi
    fi
    for index in "${!parts[@]}"; do
        kill -0 "${parts[index]}" 2>/dev/null && continue
        wait "${parts[index]}"
        say "the servers ${part_servers[index]} have ended with exit code $?: see $folder/node-*.log"
        unset "parts[index]"
        if [[ -n ${part_only_here[index]} ]]; then
            say "no other node has ${part_only_here[index]}, so the collection stops"
            end_steps
        fi
    done
    # A signal ends the wait, but would only be handled after a sleep in the foreground.
    sleep 1 &
    wait $!
done
wait "$collecting"
code=$?

end_steps
for ((second = 0; second < 20; second++)); do
    is_running=
    for process in "${parts[@]}" "${background[@]}"; do kill -0 "$process" 2>/dev/null && is_running=yes; done
    [[ -z $is_running ]] && break
    sleep 1
done

owed=$(unresolved)
say "the collection ended with exit code $code, ${owed:-?} rollouts are unresolved"
if [[ $asked == cancel ]]; then
    scancel "$SLURM_JOB_ID"
    sleep 60
elif [[ $asked == limit && (${owed:-1} -gt 0 || $code -ge 128) ]]; then
    if ((attempt >= job_attempts)); then
        say "this was the last of $job_attempts attempts (--job-attempts). Submit again with --resume to continue"
        exit 75
    fi
    say "requeued to continue"
    scontrol requeue "$SLURM_JOB_ID" && sleep 60
    say "the job could not be requeued. Submit again with --resume to continue"
    exit 75
fi
exit "$code"
