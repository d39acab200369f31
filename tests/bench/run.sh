#!/usr/bin/env bash
# Builds the benchmarks and runs servers through them side by side, in turn. Without arguments: our release build, the
# stock Python server and the floor, with what the README's table shows.
#   tests/bench/run.sh --name ours --server 'build/release/bin/rpc_server --host 127.0.0.1 --port {port} --key {key} {tracker}' \
#     --tracker 'build/release/bin/tracker --host 127.0.0.1 --port {port}' --stock-python build/venv/bin/python --floor \
#     --what session,call,alloc,upload,copy,parallel,memory,vm,client,tuner --rounds 3 --out bench.json
# BENCH_BIN   where the binaries go (default: build/bench)
# BENCH_NETNS set to 1 to run in a network namespace of its own (root): a quiet loopback with the Reno congestion control
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${BENCH_BIN:-$root/build/bench}
mkdir -p "$bin"
newer() { [[ ! -e $2 || $1 -nt $2 || $here/wire.h -nt $2 ]]; }
for t in rpc_bench floor; do
  if newer "$here/$t.cpp" "$bin/$t"; then
    ${CXX:-g++} -O2 -std=c++17 -Wall -Wextra "$here/$t.cpp" -o "$bin/$t" -lpthread
  fi
done
if (($# == 0)); then
  programs=$root/build/release/bin
  set -- --name ours --server "$programs/rpc_server --host 127.0.0.1 --port {port} --key {key} {tracker}" \
    --tracker "$programs/tracker --host 127.0.0.1 --port {port}" \
    --stock-python "$root/build/venv/bin/python" --floor \
    --name stock-server-our-tracker \
    --server "$root/build/venv/bin/python -m tvm.exec.rpc_server --host 127.0.0.1 --port {port} --port-end {port_end} --key {key} {tracker}" \
    --tracker "$programs/tracker --host 127.0.0.1 --port {port}" \
    --what session,call,upload,copy,memory,tuner --sizes 1K,256M --copy-sizes 1M,256M --rounds 3 --out "$root/build/bench/bench.json"
fi
cmd=("$root/build/venv/bin/python" "$here/compare.py" --bin "$bin" "$@")
if [[ ${BENCH_NETNS:-0} == 1 ]]; then
  exec unshare -n bash -c 'ip link set lo up; sysctl -qw net.ipv4.tcp_congestion_control=reno || true; exec "$@"' -- "${cmd[@]}"
fi
exec "${cmd[@]}"
