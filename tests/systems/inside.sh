#!/bin/bash
# Runs in the root of a system, as its only user of p2pshim: tests/systems/systems.py starts it. Prints `right` or `WRONG`, a tab, and a
# subject for each check, and the output of those that are wrong. /work has what it needs.
cd /work || exit 1
export P2PSIM_DEVICES=2
deb=(p2pshim_*.deb) wheel=(p2pshim-*.whl)
version=${deb[0]#p2pshim_} version=${version%%_*}
saw="p2pshim $version saw 1 copies of 4096 bytes"
direct='84 copies of 1 MiB from GPU 0 to 1, the last 64: 0 through the host, 64 direct, data right'
staged='84 copies of 1 MiB from GPU 0 to 1, the last 64: 64 through the host, 0 direct, data right'

# check SUBJECT PATTERN COMMAND...: the command prints that.
check() {
    local subject=$1 pattern=$2 said
    shift 2
    said=$("$@" 2>&1)
    # shellcheck disable=SC2053
    if [[ $said == $pattern ]]; then
        printf 'right\t%s\n' "$subject"
    else
        printf 'WRONG\t%s\n%s\n    expected: %s\n' "$subject" "$said" "$pattern"
    fi
}

# The installed files, but for those that the packages' tools remember.
installed() {
    find / -xdev \( -path /work -o -path /tmp -o -path /root -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \
        -o -path /etc/ld.so.cache \) -prune -o -print | sort
}

left() { diff <(echo "$before") <(installed) && echo nothing; }

# $1: what is installed; $2: its command; $3: its simulated GPUs; $4: python3 that finds its module.
used() {
    local by=$1 p2pshim=$2 sim=$3 python=$4 traces=/tmp/traces-$1 folder=/tmp/hangs-$1
    check "$by: --version" "p2pshim $version" "$p2pshim" --version
    check "$by: program alone" "$staged" env LD_LIBRARY_PATH="$sim" /tmp/demo never
    check "$by: run" "*$direct" "$p2pshim" run --sim 2 --no-check --trace "$traces" --no-report /tmp/demo never
    check "$by: run, path loses data" "*$staged" env P2PSIM_FAULT='corrupt:0>1' "$p2pshim" run --sim 2 --no-report /tmp/demo enables
    check "$by: report" '*MB of submitted copies were direct that would have been staged.*calls      84, none dropped*' "$p2pshim" report "$traces"
    check "$by: doctor" '*Verdict: peer access can be trusted. Data arrived in every test of every pair.*' "$p2pshim" doctor --sim 2
    mkdir "$folder"
    "$p2pshim" run --sim 2 --no-check --no-report --trace "$folder/t" /tmp/hanging event "$folder" &
    for ((tries = 0; tries < 300; tries++)); do
        [[ $("$p2pshim" hang "$folder/t" 2>&1) == *'does not return'* ]] && break
        sleep 0.1
    done
    check "$by: hang" '*is in a GPU call that does not return*has been in cudaEventSynchronize*' "$p2pshim" hang "$folder/t"
    touch "$folder/go"
    wait
    check "$by: Python" "$saw" "$p2pshim" run --no-report --no-check --sim 2 -- "$python" app.py
}

# $1: what is installed; $2: its folder of pkgconfig; $3: its simulated GPUs; $4: its prefix.
compiled() {
    local by=$1 sim=$3 flags compiler source
    flags=$(PKG_CONFIG_PATH=$2 pkg-config --cflags --libs p2pshim)
    for source in c cpp; do
        [ $source = c ] && compiler=gcc || compiler=g++
        # shellcheck disable=SC2086
        check "$by: $compiler, by pkg-config" '' $compiler -Iinclude app.$source $flags "$sim/libcudart.so.12" -o /tmp/app
        check "$by: what $compiler made" "$saw" env LD_LIBRARY_PATH="${2%/pkgconfig}:$sim" /tmp/app
    done
    rm -rf /tmp/cmake
    check "$by: CMake" '*Built target app_cpp*' sh -c "cmake -S . -B /tmp/cmake -DCMAKE_PREFIX_PATH=$4 -DCUDA_INCLUDE=/work/include \
        -DCUDART=$sim/libcudart.so.12 && cmake --build /tmp/cmake"
    check "$by: what CMake made" "$saw" env LD_LIBRARY_PATH="$sim" /tmp/cmake/app_cpp
}

# Programs of every kind, none of which uses a GPU.
programs() {
    gcc -static static.c -o /tmp/static && /tmp/static
    g++ -O1 static.cpp -o /tmp/dynamic && /tmp/dynamic
    bash -c 'echo $((1 + 2)) | cat; (exit 3); echo $?'
    python3 -c 'import ctypes, json, subprocess, threading; print(json.dumps(subprocess.getoutput("echo x")))'
    perl -e 'print join(",", map { $_ * 2 } 1 .. 3), "\n"; system("true"); print "$?\n"'
    su nobody -s /bin/sh -c 'id -un'
    dpkg --audit && tar cf - /etc/hostname 2>/dev/null | tar tf -
    make --version | head -1
    find /proc/self/fd | wc -l
}

# The library is in /etc/ld.so.preload, and so in programs with more rights than their user, which are to trust nothing of his.
preloaded() {
    local plain program folder=/tmp/users
    plain=$(programs 2>&1)
    echo "$1" >/etc/ld.so.preload
    check 'ld.so.preload: each program as before' "$plain" programs
    cp /tmp/demo-rpath /tmp/set-user-id && chown 1234:1234 /tmp/set-user-id && chmod 6755 /tmp/set-user-id
    cp /tmp/demo-rpath /tmp/capable && setcap cap_net_raw+ep /tmp/capable
    for program in set-user-id capable demo-rpath; do
        rm -rf $folder && mkdir -m 777 $folder
        user=(setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=$folder XDG_CACHE_HOME=$folder P2PSIM_ROOT=$folder
            P2PSHIM_TRACE=$folder/t P2PSHIM_LOG=trace P2PSHIM_LOG_FILE=$folder/log P2PSHIM_SUMMARY=on
            P2PSHIM_ACCESS=off /tmp/$program never)
        if [ $program = demo-rpath ]; then
            check 'ld.so.preload: a program of the user obeys him' "*$staged" "${user[@]}"
            check 'ld.so.preload: and writes where he says' '*/log*.p2ptrace*' sh -c "echo $folder/log; find $folder/t"
        else
            check "ld.so.preload: $program program ignores its user" \
                "p2pshim *P2PSHIM variables are ignored: the program runs with more privileges than its user?$direct" "${user[@]}"
            check "ld.so.preload: $program program leaves nothing" "$folder" find $folder
        fi
    done
    rm /etc/ld.so.preload
}

{ ldd --version | sed -n '1s/.* /glibc /p'; gcc -dumpfullversion | sed 's/^/gcc /'; python3 -V; cmake --version | head -1; } | paste -sd, |
    sed 's/^/has\t/; s/,/, /g'
# Programs that are not to know what is installed.
sim=/tmp/sim && mkdir $sim && dpkg-deb --fsys-tarfile "${deb[0]}" | tar x -C $sim --strip-components=5 ./usr/lib/p2pshim/sim
for program in demo hanging; do
    gcc -D_GNU_SOURCE -Iinclude -I. $program.c $sim/libcudart.so.12 -ldl -o /tmp/$program || exit 1
done
gcc -D_GNU_SOURCE -Iinclude -I. demo.c $sim/libcudart.so.12 -ldl -Wl,-rpath,$sim -Wl,--disable-new-dtags -o /tmp/demo-rpath || exit 1
before=$(installed)

check 'deb: dpkg installs it' '*Setting up p2pshim*' dpkg -i "${deb[0]}"
used deb p2pshim /usr/lib/p2pshim/sim python3
compiled deb /usr/lib/x86_64-linux-gnu/pkgconfig /usr/lib/p2pshim/sim /usr
preloaded /usr/lib/x86_64-linux-gnu/libp2pshim.so.0
check 'deb: dpkg removes it' '*Removing p2pshim*' dpkg --purge p2pshim
check 'deb: what is left' nothing left

# As INSTALL.md has it for clusters.
dpkg-deb -x "${deb[0]}" /tmp/unpacked && mkdir -p /opt && mv /tmp/unpacked/usr /opt/p2pshim
printf '#!/bin/sh\nPYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/opt/p2pshim/lib/python3/dist-packages exec python3 "$@"\n' >/tmp/python && chmod 755 /tmp/python
used prefix /opt/p2pshim/bin/p2pshim /opt/p2pshim/lib/p2pshim/sim /tmp/python
compiled prefix /opt/p2pshim/lib/x86_64-linux-gnu/pkgconfig /opt/p2pshim/lib/p2pshim/sim /opt/p2pshim
rm -r /opt/p2pshim
check 'prefix: what is left' nothing left

python3 -m venv --without-pip --system-site-packages /tmp/venv
environment() { find /tmp/venv -type f | grep -v __pycache__ | sort; }
empty=$(environment)
check 'wheel: pip installs it' '*Successfully installed p2pshim*' /tmp/venv/bin/python -m pip install --no-index --no-deps "${wheel[0]}"
module=$(cd / && /tmp/venv/bin/python -c 'import os, p2pshim; print(os.path.dirname(p2pshim.__file__))')
used wheel /tmp/venv/bin/p2pshim "$module/lib/p2pshim/sim" /tmp/venv/bin/python
check 'wheel: pip removes it' '*Successfully uninstalled p2pshim*' /tmp/venv/bin/python -m pip uninstall --yes p2pshim
check 'wheel: what is left' "$empty" environment
check 'wheel: what is left elsewhere' nothing left
echo 'end'
