# SPDX-License-Identifier: MIT
# Checks texts of --help: no line ends with blanks; in a list of options no line begins at the margin, and the lines that
# continue descriptions begin in one column.
function wrong(why) { print FILENAME ": " why ": " $0; bad = 1 }
FNR == 1 || /^$/ { list = column = 0 }
/ $/ { wrong("blanks at the end") }
/^  (-|[A-Z])/ { list = 1 }
list && /^[^ ]/ { wrong("a line of a list at the margin") }
list && /^         / {
    indent = match($0, /[^ ]/)
    if (column && indent != column) wrong("expected column " column ", found " indent)
    column = indent
}
END { exit bad }
