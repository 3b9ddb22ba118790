# shellcheck shell=bash disable=SC2154,SC2086
# Sourced by ./check and ./quickstart, which set root, the checkout: installs what is missing and builds. Debian and
# Ubuntu packages; elsewhere the list is printed.
need_packages="gcc libc6-dev cmake ninja-build pkg-config libjansson-dev libpcre2-dev libyaml-dev libutf8proc-dev libcurl4-openssl-dev zlib1g-dev libcmocka-dev python3 python3-pip ca-certificates"

# Without these what needs them is left out: ranks as processes, and their test; several transfers of the disk tier at once.
optional_packages="libopenmpi-dev openmpi-bin liburing-dev"

missing_packages() { # names; without arguments those that every script needs
  local p
  for p in ${*:-$need_packages}; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"
  done
}

# Installs the packages, as root or by sudo; 1 when it cannot. Prints nothing when none is missing.
install_packages() {
  local missing sudo=""
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -z "${missing// /}" ] && return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null && sudo -n true 2>/dev/null || { [ -t 0 ] && command -v sudo >/dev/null; } || return 1
    sudo=sudo
  fi
  echo "== installing: $missing"
  $sudo apt-get update -q && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing
}

# What is missing of the optional packages, if it can be installed; never fails.
install_optional() {
  if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then install_packages $optional_packages >/dev/null 2>&1; fi
  return 0
}

install_missing() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    command -v cmake >/dev/null && command -v ninja >/dev/null && return 0
    echo "This is no Debian or Ubuntu machine. Please install the equivalents of: $need_packages" >&2
    exit 1
  fi
  install_packages && return 0
  echo "Please install as root: apt-get install $(missing_packages | tr '\n' ' ')" >&2
  exit 1
}

# Configures a preset with the flags in the array cmake_flags, if there is one, and builds targets, or everything.
build() { # preset, targets...
  local preset=$1
  shift
  mkdir -p "$root/build"
  local log=$root/build/$preset.configure.log
  local flags=(${cmake_flags[@]+"${cmake_flags[@]}"})
  command -v ccache >/dev/null && flags+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
  (cd "$root" && cmake --preset "$preset" ${flags[@]+"${flags[@]}"}) >"$log" 2>&1 || { cat "$log" >&2; return 1; }
  (cd "$root" && cmake --build --preset "$preset" ${1:+--target "$@"})
}
