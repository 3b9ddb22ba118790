#!/usr/bin/env bash
# Checks that every #include goes upwards: a folder includes only from itself and from folders above it. Since each file
# obeys, transitive includes do too. Prints each violation; exit status 1 if there is one.
set -u
cd "$(dirname "$0")/.." || exit 1

# Folder: what it may include, itself aside.
declare -A layers=(
  [base]=""
  [tensor]="base"
  [program]="base tensor"
  [io]="base tensor"
  [graph]="base tensor program"
  [ops]="base tensor program graph"
  [passes]="base tensor program io graph ops"
  [plan]="base tensor program graph"
  [run]="base tensor program plan graph"
  [models]="base tensor program io graph ops"
  [engine]="base tensor program io graph ops passes plan run models"
  [api]="base tensor program io graph ops passes plan run models engine"
  [cli]=""
)

bad=0
complain() { echo "$1"; bad=1; }
while IFS=: read -r file line text; do
  folder=${file#src/}; folder=${folder%%/*}
  target=${text#*\"}; target=${target%%\"*}
  case "$file" in *_test.c|*_fuzz.c|*_fake.h) continue ;; esac
  case "$target" in
    snug.h) [ "$folder" = api ] || [ "$folder" = cli ] || complain "$file:$line: only api/ and cli/ include snug.h" ; continue ;;
    */*) ;;
    *) complain "$file:$line: include '$target' by its folder"; continue ;;
  esac
  to=${target%%/*}
  [ "$to" = "$folder" ] && continue
  list=${layers[$folder]--}
  [ "$list" = "-" ] && { complain "$file:$line: folder '$folder' has no place in the list of layers"; continue; }
  [[ " $list " == *" $to "* ]] || complain "$file:$line: $folder/ may not include $target"
done < <(grep -rn --include='*.c' --include='*.h' --include='*.cu' '#include "' src)

# Kernels see base, tensor and program only; run never sees the graph's nodes.
while IFS=: read -r file line text; do
  complain "$file:$line: a kernel may not include ${text#*include }"
done < <(grep -nE '#include "(graph|io|passes|plan|run|models|engine|api)/' src/ops/*/*_cpu.c src/ops/*/*_avx*.c 2>/dev/null)
exit $bad
