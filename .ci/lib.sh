# Functions that the scripts in .ci share; `source` it. A failed step is recorded, and the next one
# runs.

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
export RUST_BACKTRACE=1
export CARGO_NET_RETRY=10
# No debug information: test programs compile and link in less time. Backtraces lack line numbers,
# but a panic still names its line.
export CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-0}
features=allocator-api2-02,allocator-api2-03,allocator-api2-04,derive,hashbrown-017,places,serde
# The same features, with their packages, for commands on the workspace; and the server's.
all_features=allotment/${features//,/,allotment/},allotment-server/toml
started=$SECONDS
failed=()
logs=()
skipped=()
took=()

# step NAME COMMAND...: runs the command, prints how long it took, and goes on if it fails. What a
# failed step printed is kept for the end.
step() {
    local name=$1 from=$SECONDS log code
    shift
    log=$(mktemp)
    printf '\n== %s\n' "$name"
    # No pipe: a server that a test left behind would keep it open, and this script waiting. The
    # last lines take a moment.
    "$@" > >(tee "$log") 2>&1 && code=0 || code=$?
    sleep 0.1
    if [ "$code" = 0 ]; then
        took+=("$((SECONDS - from)) s: $name")
        printf '== %s: %d s\n' "$name" $((SECONDS - from))
        rm -f "$log"
    else
        took+=("$((SECONDS - from)) s: $name (failed)")
        printf '\n== FAILED: %s (%d s)\n   %s\n' "$name" $((SECONDS - from)) "$*"
        failed+=("$name")
        logs+=("$log")
    fi
}

# seconds_left: until the limit of the whole run, the time CI_ENDS; a day if there is none.
seconds_left() { echo $((${CI_ENDS:-$(($(date +%s) + 86400))} - $(date +%s))); }

# step_in SECONDS NAME COMMAND...: a step that is skipped if less time is left. The limit ends it, and
# then it counts as skipped, with the last line that it printed.
step_in() {
    local seconds=$1 name=$2 left printed ended=0
    shift 2
    left=$(seconds_left)
    if [ "$left" -lt "$seconds" ]; then
        skip "$name" "$left s are left, and it takes about $seconds s"
        return
    fi
    printed=$(mktemp)
    in_time() {
        timeout --kill-after=10 "$left" "$@" > >(tee "$printed") 2>&1 || ended=$?
        sleep 0.1
        # 124 and 137: the limit ended it.
        [ $ended = 124 ] || [ $ended = 137 ] || return $ended
    }
    step "$name" in_time "$@"
    if [ $ended = 124 ] || [ $ended = 137 ]; then
        skip "$name" "no end within the limit; it was at: $(grep -v '^$' "$printed" | tail -n 1)"
    fi
    rm -f "$printed"
}

# skip NAME REASON
skip() {
    printf '\n== SKIPPED: %s: %s\n' "$1" "$2"
    skipped+=("$1: $2")
}

# beside NAME COMMAND...: starts a step that runs beside the following ones, for a command with
# target folders of its own. `wait_beside` prints what it printed, and records whether it failed.
# Tests spend much of their time waiting, or on one core.
beside() {
    beside_name=$1
    shift
    beside_output=$(mktemp)
    printf '\n== %s: started beside the next steps\n' "$beside_name"
    # A process group of its own, which ends with this script.
    set -m
    "$@" >"$beside_output" 2>&1 </dev/null &
    beside_process=$!
    set +m
    trap 'kill -- -"$beside_process" 2>/dev/null; rm -f "$beside_output"' EXIT
}

wait_beside() {
    print_beside() {
        local code=0 left
        left=$(seconds_left)
        # The lane's own steps end at the limit. This is for one that does not.
        (sleep $((left + 60)) && echo "== FAILED: no end within the limit" >>"$beside_output" && kill -- -"$beside_process") 2>/dev/null &
        local limit=$!
        wait "$beside_process" || code=$?
        pkill -P "$limit" 2>/dev/null
        kill "$limit" 2>/dev/null
        cat "$beside_output"
        return $code
    }
    step "$beside_name" print_beside
    trap - EXIT
    rm -f "$beside_output"
}

# Prints how long the steps took, what was skipped, and what failed with its last words; the
# script's exit status.
finish() {
    local text name log pattern='^error|panicked at|FAILED|^== failed|no end within|signal:' causes=()
    for log in "${logs[@]}"; do
        printf '\n== from the output of a failed step\n'
        grep -nE "$pattern" "$log" | tail -n 30
        causes+=("$(grep -E "$pattern" "$log" | head -n 3)")
        printf -- '...\n'
        tail -n 20 "$log"
        rm -f "$log"
    done
    printf '\n== %d s\n' $((SECONDS - started))
    for text in "${took[@]}"; do printf '==   %s\n' "$text"; done
    for text in "${skipped[@]}"; do printf '== skipped: %s\n' "$text"; done
    for name in "${!failed[@]}"; do
        printf '== failed: %s\n' "${failed[$name]}"
        # Once more, at the end: the first lines that say why.
        [ -z "${causes[$name]}" ] || sed 's/^/==   /' <<<"${causes[$name]}"
    done
    [ ${#failed[@]} = 0 ] && echo '== all passed'
}

has() { command -v "$1" >/dev/null; }

# packages WORD...: installs Debian packages where that is possible. Callers look afterwards what is
# there.
packages() {
    [ $# -gt 0 ] && [ "$(id -u)" = 0 ] && has apt-get || return 0
    if [ -z "${lists_are_new:-}" ]; then
        timeout 120 apt-get update >/dev/null 2>&1 || true
        lists_are_new=1
    fi
    export DEBIAN_FRONTEND=noninteractive
    timeout 600 apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1 && return
    # One package that this distribution lacks must not keep the others out.
    local package
    for package in "$@"; do
        timeout 300 apt-get install -y --no-install-recommends "$package" >/dev/null 2>&1 || true
    done
}

# for_programs "PROGRAM:PACKAGE..." ...: installs the packages of the programs that are missing, and
# skips what needs those that could not be installed.
for_programs() {
    local pair missing=()
    local look=$PATH:/usr/sbin:$(echo /usr/lib/postgresql/*/bin | tr ' ' :)
    for pair in "$@"; do
        # shellcheck disable=SC2086 # one word for each package
        PATH=$look command -v "${pair%%:*}" >/dev/null || missing+=(${pair#*:})
    done
    packages "${missing[@]}"
    for pair in "$@"; do
        PATH=$look command -v "${pair%%:*}" >/dev/null || skip "what needs ${pair%%:*}" 'it is not installed, and could not be'
    done
}

# toolchain NAME COMPONENT...: a Rust toolchain with its components, installed by rustup where it is
# missing.
toolchain() {
    local name=$1
    shift
    has rustup || { cargo "+$name" --version >/dev/null 2>&1; return; }
    cargo "+$name" --version >/dev/null 2>&1 ||
        timeout 300 rustup toolchain install "$name" --profile minimal >/dev/null 2>&1 || return 1
    [ $# = 0 ] || timeout 300 rustup component add "$@" --toolchain "$name" >/dev/null 2>&1 || return 1
}
