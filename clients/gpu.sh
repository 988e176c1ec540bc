#!/usr/bin/env bash
# Checks the Python package on a machine with a GPU: tests/test_gpu.py in groups, then the figures of benches/gpu.py.
# No network is used. The machine's python3 needs torch with CUDA, pytest, and the wheels that --wheels names.
set -uo pipefail

usage() {
    cat <<'END'
usage: clients/gpu.sh [--binary FILE] [--wheels FOLDER] [--dir FOLDER] [--out FOLDER] [--seconds N] [--mib N]
  --binary FILE    martlet, or martlet.xz [MARTLET_BIN]
  --wheels FOLDER  wheels to install into a folder of this run: botocore, crc32c, kvikio, nixl and their needs
  --dir FOLDER     folder on the disk to be read, for servers' data [/tmp]
  --out FOLDER     results: environment.txt, tests.txt, facts.jsonl, figures.md, cufile.log [gpu-results]
  --seconds N      bound of the whole run [285]
  --mib N          size of the object of the figures [1024]
END
}

root=$(cd "$(dirname "$0")/.." && pwd)
binary=${MARTLET_BIN:-} wheels='' dir=/tmp out=gpu-results seconds=285 mib=1024
while [ $# -gt 0 ]; do
    case $1 in
        --binary) binary=$2 ;;
        --wheels) wheels=$2 ;;
        --dir) dir=$2 ;;
        --out) out=$2 ;;
        --seconds) seconds=$2 ;;
        --mib) mib=$2 ;;
        -h | --help) usage; exit ;;
        *) usage >&2; exit 2 ;;
    esac
    shift 2
done
ends=$((SECONDS + seconds)) failed=0

stop() {
    echo "gpu.sh: $1" >&2
    exit 1
}

# Seconds for a step: those asked for, or what is left before a reserve for the steps after it.
seconds_for() {
    local left=$((ends - SECONDS - ${2:-0}))
    echo $(($1 < left ? $1 : left > 1 ? left : 1))
}

mkdir -p "$out" "$dir" && out=$(cd "$out" && pwd) || stop "$out or $dir can't be made"
work=$(mktemp -d "$dir/gpu.XXXX") || stop "no folder can be made in $dir"
trap 'rm -rf "$work"' EXIT

[ -f "$binary" ] || stop "there is no binary at '$binary': name it with --binary"
case $binary in
    *.xz) python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"))' \
        "$binary" "$work/martlet" ;;
    *) cp "$binary" "$work/martlet" ;;
esac || stop "$binary can't be copied to $work"
chmod +x "$work/martlet"
"$work/martlet" --version || stop "the binary doesn't run here: it needs a C library that this machine's $(
    ldd --version | head -n 1) lacks, or libraries: $(ldd "$work/martlet" | grep 'not found')"
export MARTLET_BIN=$work/martlet PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
export PYTHONPATH=$root/clients/python/src${PYTHONPATH:+:$PYTHONPATH}
if [ -n "$wheels" ]; then
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$work/site" "$wheels"/*.whl ||
        stop "the wheels of $wheels can't be installed"
    export PYTHONPATH=$PYTHONPATH:$work/site
fi
python3 -c 'import martlet' || stop "the package martlet can't be imported: are botocore and crc32c among the wheels?"
python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || stop "torch has no CUDA device"

# cuFile's configuration of a mode; CUFILE_ENV_PATH_JSON names it.
configure() {
    printf '{"logging": {"dir": "%s", "level": "INFO"}, "profile": {"cufile_stats": 3},
"properties": {"allow_compat_mode": %s, "use_pci_p2pdma": %s}}\n' "$work/logs" "$2" "$3" >"$work/$1.json"
}
mkdir "$work/logs"
configure compat true false
configure p2pdma false true

{
    uname -srm
    nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current --format=csv
    nvidia-smi topo -p2p p 2>&1 | head -n 4
    echo "nvidia-fs: $(cat /proc/driver/nvidia-fs/version 2>/dev/null || echo not loaded)"
    grep -E 'NVreg_|RegistryDwords|GrdmaPciTopo|DmaRemap' /proc/driver/nvidia/params 2>/dev/null | head -n 20
    echo "/run/udev: $(ls -d /run/udev 2>/dev/null || echo absent)"
    findmnt -no TARGET,SOURCE,FSTYPE,OPTIONS -T "$work" || stat -f "$work"
    lsblk -o NAME,TYPE,SIZE,ROTA,MODEL 2>/dev/null | head -n 10
    nproc
    free -g | head -n 2
    ldd --version | head -n 1
    python3 - <<'END'
import importlib.metadata, sys
print("python", sys.version.split()[0])
for name in ("torch", "cuda-bindings", "cuda-pathfinder", "nvidia-cufile", "cupy-cuda13x", "kvikio-cu13", "libkvikio-cu13",
             "nixl-cu13", "numpy", "safetensors", "botocore", "crc32c", "pytest"):
    try:
        print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        print(name, "absent")
END
} 2>&1 | tee "$out/environment.txt"

# A group of tests: a name, its part of the tests' names, and the mode of cuFile.
group() {
    local limit
    limit=$(seconds_for 45 100)
    echo "== $1 ($3)"
    [ "$limit" -ge 10 ] || { failed=1; echo "== no time was left"; return; }
    MARTLET_GPU_FACTS=$out/facts.jsonl CUFILE_ENV_PATH_JSON=$work/$3.json TMPDIR=$work \
        timeout -s INT -k 5 "$limit" python3 -X faulthandler -m pytest -p no:cacheprovider -rs --tb=short \
        -c "$root/clients/python/pyproject.toml" "$root/clients/python/tests/test_gpu.py" -k "$2" >"$work/said" 2>&1
    local code=$?
    tail -n 40 "$work/said"
    cat "$work/said" >>"$out/tests.txt"
    [ $code -eq 0 ] || { failed=1; echo "== $1 ($3) ended with $code"; }
}
: >"$out/tests.txt"
: >"$out/facts.jsonl"
# Those that are new to a machine come first, in case time runs out.
group "cuFile" test_cufile compat
group "KvikIO" test_kvikio compat
group "NIXL" test_nixl compat
group "pinned memory" test_pinned compat
group "cuFile" test_cufile p2pdma
group "torch" test_torch compat
echo "== facts"
cat "$out/facts.jsonl"
echo "== figures"
left=$(seconds_for 150)
CUFILE_ENV_PATH_JSON=$work/compat.json timeout -s INT -k 10 "$left" \
    python3 -B "$root/benches/gpu.py" --dir "$work" --mib "$mib" --seconds $((left > 20 ? left - 12 : 1)) \
    >"$out/figures.md" || failed=1
cat "$out/figures.md"
find "$work/logs" -type f -exec cat {} + 2>/dev/null | head -c 4000000 >"$out/cufile.log"
grep -hoiE '(compat|p2pdma|unsupported|not supported|error)[^,]{0,120}' "$out/cufile.log" | sort | uniq -c | sort -rn | head -n 12
echo "== ended after $SECONDS s, $([ $failed -eq 0 ] && echo 'all passed' || echo 'with failures')"
exit $failed
