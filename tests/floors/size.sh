#!/bin/sh
# size.sh ROOT [FILES LINES]: counts ROOT/src (C, CUDA and headers) and fails beyond the ceiling: what is added
# must make room for itself. Who makes src smaller lowers the ceiling here in the same commit; who has a good
# reason to raise it says so in the commit.
set -eu
most_files=${2:-262}
most_lines=${3:-48212}
cd -- "$1"
sources()
{
    find src -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) "$@"
}
files=$(sources | wc -l)
lines=$(sources -exec cat {} + | wc -l)
echo "src: $files files of at most $most_files, $lines lines of at most $most_lines"
if [ "$files" -gt "$most_files" ] || [ "$lines" -gt "$most_lines" ]; then
    echo "src has grown: join files that are one idea, say the same in fewer lines, delete what nothing calls"
    exit 1
fi
