# Sourced by ./check and ./quickstart: installs what is missing and builds. Debian and Ubuntu packages; elsewhere the
# list is printed.
need_packages="gcc cmake ninja-build pkg-config libjansson-dev libpcre2-dev libyaml-dev libutf8proc-dev libcurl4-openssl-dev zlib1g-dev libcmocka-dev python3 python3-pip ca-certificates"

missing_packages() {
  for p in $need_packages; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"
  done
}

install_missing() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    command -v cmake >/dev/null && command -v ninja >/dev/null && return 0
    echo "This is no Debian or Ubuntu machine. Please install the equivalents of: $need_packages" >&2
    exit 1
  fi
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  [ -z "${missing// /}" ] && return 0
  local sudo=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "Please install as root: apt-get install $missing" >&2; exit 1; }
    sudo=sudo
  fi
  echo "== installing: $missing"
  $sudo apt-get update -q
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -qy --no-install-recommends $missing
}

build() { # preset, targets...
  local preset=$1
  shift
  local launcher=""
  command -v ccache >/dev/null && launcher=-DCMAKE_C_COMPILER_LAUNCHER=ccache
  cmake --preset "$preset" $launcher "${cmake_flags[@]:-}" >"$root/build/$preset.configure.log" 2>&1 || { cat "$root/build/$preset.configure.log"; exit 1; }
  if [ $# -gt 0 ]; then cmake --build --preset "$preset" --target "$@"; else cmake --build --preset "$preset"; fi
}
