#!/bin/sh
# size.sh ROOT [TABLE]: counts the rooms of ROOT/src (C, CUDA and headers) and fails where one is larger than its row in
# TABLE (size.txt) allows: what is added must make room for itself. Who makes a room smaller lowers its row in the
# same commit; who has a good reason to raise it, a new ability above all, says so in the commit.
set -eu
table=${2:-$(dirname -- "$0")/size.txt}
table=$(cd -- "$(dirname -- "$table")" && pwd)/$(basename -- "$table")
cd -- "$1"
for room in src/*/; do
    find "$room" -type f \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -exec cat {} + |
        wc -l | tr '\n' ' '
    find "$room" -type f \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) | wc -l | tr '\n' ' '
    basename "$room"
done | awk -v table="$table" '
    BEGIN {
        while ((getline row < table) > 0)
            if (split(row, cell) >= 3 && cell[1] !~ /^#/) { files[cell[1]] = cell[2]; lines[cell[1]] = cell[3] }
    }
    $2 > 0 {
        total_files += $2; total_lines += $1
        if ($2 > files[$3] + 0 || $1 > lines[$3] + 0) {
            printf "src/%s: %d files of at most %d, %d lines of at most %d\n", $3, $2, files[$3], $1, lines[$3]
            grown = 1
        }
    }
    END {
        printf "src: %d files, %d lines\n", total_files, total_lines
        if (grown)
            print "grown: join files that are one idea, say the same in fewer lines, delete what nothing calls"
        exit grown
    }'
