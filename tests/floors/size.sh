#!/bin/sh
# size.sh ROOT [TABLE]: counts the rooms of ROOT/src (C, CUDA and headers) and fails where one is larger than its row in
# TABLE (size.txt) allows: what is added must make room for itself. Who makes a room smaller lowers its row in the
# same commit; who has a good reason to raise it, a new ability above all, says so in the commit.
# It fails as well where the house is larger than its row: all of src, less the abilities that TABLE names.
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
    function grown(what, files, lines, most_files, most_lines) {
        if (files <= most_files && lines <= most_lines)
            return 0
        printf "%s: %d files of at most %d, %d lines of at most %d\n", what, files, most_files, lines, most_lines
        return 1
    }
    BEGIN {
        while ((getline row < table) > 0) {
            n = split(row, cell)
            if (cell[1] == "+" && n == 4) {
                ability[cell[2]] += cell[4]; of_room[cell[3]] += cell[4]; abilities += cell[4]
            } else if (n >= 3 && cell[1] !~ /^#/) {
                files[cell[1]] = cell[2]; lines[cell[1]] = cell[3]
            }
        }
    }
    $2 > 0 {
        total_files += $2; total_lines += $1
        too_much += grown("src/" $3, $2, $1, files[$3], lines[$3])
        if (of_room[$3] > $1) {
            printf "src/%s: %d lines, of which %d are said to be of abilities\n", $3, $1, of_room[$3]
            too_much++
        }
    }
    END {
        too_much += grown("the house", total_files, total_lines - abilities, files["house"], lines["house"])
        printf "src: %d files, %d lines: %d of the house", total_files, total_lines, total_lines - abilities
        for (name in ability)
            printf ", %d of %s", ability[name], name
        print ""
        if (too_much)
            print "grown: join files that are one idea, say the same in fewer lines, delete what nothing calls"
        exit too_much > 0
    }'
